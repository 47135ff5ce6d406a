"""What `python -m benchmarks search` tries, and a model that it needs for that."""
