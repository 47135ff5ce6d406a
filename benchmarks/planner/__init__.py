"""The oracle's planner, native beside NumPy."""
