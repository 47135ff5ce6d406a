"""Checkpoints while a run trains."""
