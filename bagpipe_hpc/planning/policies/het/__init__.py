"""HET (PVLDB 15(2), 2022): a cache with each trainer, clocks of rows, and a bound for what look-ups may miss."""
