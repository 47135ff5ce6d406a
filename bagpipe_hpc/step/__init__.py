"""One training step: what trainers and the reference share."""
