"""What the oracle tells the trainers, and the order of a run's samples."""
