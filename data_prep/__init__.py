"""From raw clicks to shards: synthetic rows, readers of source formats, vocabularies, `bagpipe prepare`."""
