"""Layers whose products, or gradients, are computed in ways of this package."""
