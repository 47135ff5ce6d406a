"""Predicts a run without running it, from real plans and a model of compute and of links (docs/simulate.md)."""
