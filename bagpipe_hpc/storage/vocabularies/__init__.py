"""Files of vocabularies beside the shards: which value has which id, how ids are used, and which values have none."""
