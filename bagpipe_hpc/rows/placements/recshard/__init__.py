"""RecShard (ASPLOS 2022): tables on servers and their hottest rows in fast memory, by statistics of access."""
