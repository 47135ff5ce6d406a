"""Hotline (ISCA 2024): the samples whose rows are all here are computed while the rows of the others are fetched."""
