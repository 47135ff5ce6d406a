"""Rows between servers and trainers, beside plain copies and plain messages."""
