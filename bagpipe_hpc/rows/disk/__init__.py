"""The rows of a server in a file, and those in use in memory: what fits, what moves when, and who waits for it."""
