"""`bagpipe plan`: what a run would move, hold and wait for, by its plans, before it runs; and its plans in a file."""
