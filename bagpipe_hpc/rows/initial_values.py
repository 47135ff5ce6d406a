"""First values of embedding rows: a pure function of (seed, table, id), so they do not depend on who holds the row."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.split_mix import GOLDEN, mix


def initial_weights(
    rows: NDArray[np.int64],
    table_offsets: NDArray[np.int64],
    embedding_dim: int,
    seed: int,
    bound: float = 0.0,
    numbers: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Uniform weights between -bound and bound.

    Args:
        rows: `[N]`, numbered through some tables.
        table_offsets: first row of each of these tables, and the end, int64 `[tables + 1]`.
        embedding_dim: width D.
        seed: the run's seed.
        bound: of all tables (`Config.initial_bound`); 0 gives each table its own, 1/sqrt(n), n its rows, as in the
            published DLRM.
        numbers: of these tables among all tables of the run, `[tables]`; if not given, these are all of them.

    Returns:
        float32 `[N, D]`.
    """
    tables = np.searchsorted(table_offsets, rows, side="right") - 1
    ids = rows - table_offsets[tables]
    of_all = tables if numbers is None else np.asarray(numbers)[tables]
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is the point
        keys = mix(mix(np.uint64(seed) + of_all.astype(np.uint64) * GOLDEN) + ids.astype(np.uint64) * GOLDEN)
        values = mix(keys[:, None] + np.arange(1, embedding_dim + 1, dtype=np.uint64) * GOLDEN)
    unit = (values >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)  # [-1, 1)
    if bound:
        return unit * np.float32(bound)
    of_tables = (1.0 / np.sqrt(np.diff(table_offsets))).astype(np.float32)
    weights: NDArray[np.float32] = unit * of_tables[tables][:, None]
    return weights
