"""Look-ups like those of Criteo Kaggle: its table sizes or others, ids by popularity.

Legend: `n` samples of a batch, `F` tables.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.simulation import synthetic_rows
from data_prep.synthetic.criteo_clicks import KAGGLE_IDS

TABLE_ROWS = KAGGLE_IDS
"""Rows of each table: a row for every distinct value of the whole data set, 33.8 million."""


def draw_batches(
    batches: int, samples: int, zipf: float, seed: int, table_rows: Sequence[int] = TABLE_ROWS
) -> list[NDArray[np.int64]]:
    """Global rows of each batch, int64 `[n, F]`, as the oracle reads them; a table a column.

    The popularity of an id falls as `(id + 1) ** -zipf`. Prepared data has the frequent ids first, too.
    """
    return list(synthetic_rows.draw_batches(tuple(table_rows), batches, samples, zipf, seed))


def draw_bags(
    batches: int, samples: int, longest: int, zipf: float, seed: int, table_rows: Sequence[int] = TABLE_ROWS
) -> list[Bags]:
    """The same with 1 to `longest` rows a sample and feature, every length as often; 0 for one-hot features."""
    rng = np.random.default_rng(seed)
    found = []
    for rows in synthetic_rows.draw_batches(tuple(table_rows), batches, samples * max(1, longest), zipf, seed):
        if not longest:
            found.append(Bags.one_hot(rows))
            continue
        lengths = rng.integers(1, longest, (samples, len(table_rows)), endpoint=True)
        by_bag = rows.reshape(samples, longest, -1).transpose(0, 2, 1)
        found.append(Bags.ragged(by_bag[np.arange(longest) < lengths[..., np.newaxis]], lengths))
    return found
