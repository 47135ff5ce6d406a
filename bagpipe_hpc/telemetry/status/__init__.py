"""What each rank does now: files that it writes every few seconds."""
