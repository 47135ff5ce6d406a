"""Real Criteo rows, where this machine has them beside the checkout. Their licence forbids to hand them on."""

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "shared" / "data"
SAMPLED_ROWS = _FOLDER / "criteo_kaggle_dac_first100000.tsv.xz"
"""100,000 rows of all days, in the order of time."""
FIRST_ROWS = _FOLDER / "criteo_kaggle_head10000.tsv.xz"
"""10,000 rows that follow each other."""
