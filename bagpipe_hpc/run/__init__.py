"""What all ranks know of a run."""
