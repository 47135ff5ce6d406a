"""Optimizers of embedding rows: a class each, which oracle and servers import without torch."""
