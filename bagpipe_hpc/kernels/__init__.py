"""Native code, and its twins in NumPy and torch."""
