"""Raw text to shards, beside the bare parser."""
