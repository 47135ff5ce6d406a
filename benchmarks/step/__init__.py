"""Whole training steps over links of several speeds."""
