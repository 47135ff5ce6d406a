"""Rows on one device, and how they are updated."""
