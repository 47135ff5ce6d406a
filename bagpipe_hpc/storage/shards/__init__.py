"""Prepared data: shards of samples."""
