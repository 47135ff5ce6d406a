"""What benchmarks start and watch: links between hosts, training jobs, other load on the machine."""
