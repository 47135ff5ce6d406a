"""Embedding rows: what travels with one, where it lies, its first values."""
