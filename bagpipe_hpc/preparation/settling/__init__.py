"""Settings that are `auto`, or depend on what ranks have: what all ranks take alike (Collective over: all ranks)."""
