"""Input files: which they are, how ranks divide them, and their rows in blocks."""
