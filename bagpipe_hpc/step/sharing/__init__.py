"""How trainers share rows: the contract of `cache.sharing`, and its ways."""
