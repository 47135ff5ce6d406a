"""Sums of dense gradients over the trainers: their contract, what makes them, and in which groups and order."""
