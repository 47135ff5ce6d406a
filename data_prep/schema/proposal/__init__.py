"""`bagpipe schema`: proposes a schema for files from a sample of one."""
