"""Rows in which two groups of columns need different transforms."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.schema.columns import NumericColumn
from data_prep.search.sampled_rows import SampledRows

GROUPS = (0, 1, 0, 1, 0, 1)


def planted_rows(rows: int = 1500, seed: int = 7) -> SampledRows:
    """Columns of two groups in turn.

    The label follows the logarithm of those of group 0, whose numbers spread over many sizes; of those of group 1 it
    follows the number itself, which is next to 0 but in a few rows, of either sign.
    """
    rng = np.random.default_rng(seed)
    told = np.zeros(rows)
    numbers: list[NDArray[np.float64]] = []
    for group in GROUPS:
        signal = rng.normal(size=rows)
        if group == 0:
            numbers.append(np.exp(4 + 3 * signal))
        else:
            signal *= np.where(rng.random(rows) < 0.15, 2.5, 0.02)
            numbers.append(50 * signal)
        told += 1.2 * signal
    labels = (rng.random(rows) < 1 / (1 + np.exp(-told))).astype(np.float32)
    columns = tuple(NumericColumn(name=f"x{number}") for number in range(len(GROUPS)))
    return SampledRows(columns, tuple(map(pa.array, numbers)), labels, train=rows * 2 // 3)
