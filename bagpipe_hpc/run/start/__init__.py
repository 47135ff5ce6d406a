"""What a run starts from: a checkpoint, its data and settings beside those of the run, first rows and weights."""
