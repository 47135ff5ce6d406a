"""What a run finds out as it trains, and what follows from it: for samples, for rows, for its end."""
