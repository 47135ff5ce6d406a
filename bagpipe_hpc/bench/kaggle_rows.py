"""Look-ups like those of Criteo Kaggle: its table sizes or others, ids by popularity.

Legend: `n` samples of a batch, `F` tables.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.partition import table_offsets
from data_prep.generate import KAGGLE_IDS

TABLE_ROWS = KAGGLE_IDS
"""Rows of each table: a row for every distinct value of the whole data set, 33.8 million."""


def total_rows() -> int:
    """Rows of all tables."""
    return sum(TABLE_ROWS)


def draw_batches(
    batches: int, samples: int, zipf: float, seed: int, table_rows: Sequence[int] = TABLE_ROWS
) -> list[NDArray[np.int64]]:
    """Global rows of each batch, int64 `[n, F]`, as the oracle reads them; a table a column.

    The popularity of an id falls as `(id + 1) ** -zipf` (`zipf` other than 1): the inverse of the continuous
    distribution's cumulative function, rounded down. Prepared data has the frequent ids first, too.
    """
    rng = np.random.default_rng(seed)
    sizes = np.asarray(table_rows, dtype=np.float64)
    power = 1.0 - zipf
    span = (sizes + 1.0) ** power - 1.0
    first_rows = table_offsets(tuple(table_rows))[:-1]
    drawn = []
    for _ in range(batches):
        ranks = (1.0 + rng.random((samples, sizes.size)) * span) ** (1.0 / power)
        drawn.append(np.minimum(ranks, sizes).astype(np.int64) - 1 + first_rows)
    return drawn
