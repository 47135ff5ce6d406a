"""Look-ups and shards like those of the Criteo Kaggle data."""
