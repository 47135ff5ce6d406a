"""What each rank does: the main loops of oracle, embedding server and trainer, and the one-rank reference."""
