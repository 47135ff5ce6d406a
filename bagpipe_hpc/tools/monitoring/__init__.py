"""What the ranks of a run do now, from the files that they write: for a terminal, and for Prometheus."""
