"""Commands for runs: before, while and after they train."""
