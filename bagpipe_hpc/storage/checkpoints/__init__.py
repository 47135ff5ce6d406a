"""Checkpoints: their files and what they promise."""
