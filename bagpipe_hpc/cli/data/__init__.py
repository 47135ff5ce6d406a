"""Commands that make data."""
