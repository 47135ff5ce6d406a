"""What tells of a run: a metrics file, a line on a terminal, a summary, event files for TensorBoard."""
