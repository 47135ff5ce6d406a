"""Rows with one home each: their slots, and plans of what trainers exchange; policies bring the rules."""
