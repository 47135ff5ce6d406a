"""The stages of a preparation, in this order: parse, fit, count, write."""
