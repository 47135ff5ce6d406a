"""Predicts a run without running it: real plans, with a model of compute and of links (docs/simulate.md)."""
