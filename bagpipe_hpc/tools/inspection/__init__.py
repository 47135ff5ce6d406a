"""`bagpipe inspect`: what a folder of this program holds, and how its samples look up rows."""
