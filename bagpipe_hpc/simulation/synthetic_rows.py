"""Draws look-ups of tables of any size, by popularity, without holding anything of the tables in memory.

Legend: `n` samples of a batch, `F` tables.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.partition import table_offsets

MOST_ROWS = 1 << 53
"""Rows are drawn as float64, which represents every whole number up to here."""
_LARGEST_UNSCALED = 1000
"""Most rows of a table that keeps its size."""
_NEARLY_ONE = 1e-9
"""Within this distance of exponent 1 the general formula loses digits; the formula for 1 is then as exact."""


def draw_batches(
    table_rows: tuple[int, ...], batches: int, samples: int, zipf: float, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Global rows of each batch, int64 `[n, F]`.

    The popularity of an id falls as `(id + 1) ** -zipf`: the inverse of the continuous distribution's cumulative
    function, rounded down.

    Args:
        table_rows: ids of each table.
        batches: how many to draw.
        samples: n.
        zipf: exponent, 0 or more; 0 is uniform.
        seed: same seed, same batches.
    """
    rng = np.random.default_rng(seed)
    sizes = np.asarray(table_rows, dtype=np.float64)
    first_rows = table_offsets(table_rows)[:-1]
    power = 1.0 - zipf
    for _ in range(batches):
        uniform = rng.random((samples, sizes.size))
        if abs(power) < _NEARLY_ONE:
            ranks = (sizes + 1.0) ** uniform
        else:
            ranks = (1.0 + uniform * ((sizes + 1.0) ** power - 1.0)) ** (1.0 / power)
        yield np.minimum(ranks, sizes).astype(np.int64) - 1 + first_rows


def scaled_tables(table_rows: tuple[int, ...], total_rows: int) -> tuple[int, ...]:
    """Tables of the same proportions with `total_rows` in all; small ones, such as of weekdays, keep their size.

    Args:
        table_rows: the tables' sizes.
        total_rows: rows of all tables together.

    Raises:
        ConfigError: `total_rows` leaves none for one of the other tables, or is more than can be drawn.
    """
    small = sum(rows for rows in table_rows if rows <= _LARGEST_UNSCALED)
    least = small + sum(rows > _LARGEST_UNSCALED for rows in table_rows)
    if not least <= total_rows <= MOST_ROWS:
        raise ConfigError(
            f"--rows {total_rows}: use {least} to {MOST_ROWS} rows; tables of up to {_LARGEST_UNSCALED} rows keep "
            f"their size, {small} rows in all, and each of the others has one at least"
        )
    factor = (total_rows - small) / (sum(table_rows) - small)
    scaled = [rows if rows <= _LARGEST_UNSCALED else max(1, round(rows * factor)) for rows in table_rows]
    scaled[scaled.index(max(scaled))] += total_rows - sum(scaled)
    return tuple(scaled)
