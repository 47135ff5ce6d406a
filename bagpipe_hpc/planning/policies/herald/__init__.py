"""Herald (APNet 2022; NSDI 2024): samples go where their rows are, and a row is pushed only for another's read."""
