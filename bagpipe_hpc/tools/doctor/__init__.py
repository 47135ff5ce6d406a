"""`bagpipe doctor`: what an installation lacks, and whether the hosts of a job can train together."""
