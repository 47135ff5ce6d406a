"""A trained model in use: how good it is on prepared rows, and what it predicts for new ones."""
