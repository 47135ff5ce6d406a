"""A search for the best transforms of dense columns."""
