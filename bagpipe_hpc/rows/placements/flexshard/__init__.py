"""FlexShard (arXiv 2301.02959): how widely a row is replicated, by how often it is looked up and by the links."""
