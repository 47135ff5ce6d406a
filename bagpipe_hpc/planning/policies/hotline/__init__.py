"""Hotline (ISCA 2024): computes samples whose rows are all in the cache while the rows of the others are fetched."""
