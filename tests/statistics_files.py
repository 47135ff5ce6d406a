"""Files of statistics of access for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bagpipe_hpc.rows.access_statistics import TableAccesses, write_statistics


def write_accesses(path: Path, counts: Mapping[str, Sequence[int]], samples: int = 100, coverage: float = 1.0) -> Path:
    """Write statistics of tables whose rows are looked up so often; so large a share of the samples has any."""
    of_rows = [np.array(found, dtype=np.int64) for found in counts.values()]
    tables = [
        TableAccesses.of_counts(name, found, samples, min(int(samples * coverage), int(found.sum())))
        for name, found in zip(counts, of_rows, strict=True)
    ]
    with path.open("wb") as file:
        write_statistics(file, "ab" * 32, tables, of_rows, samples)
    return path


def zipf_counts(rows: int, look_ups: int, skew: float = 1.1) -> list[int]:
    """Look-ups of rows that fall with a power of their rank, over rows in an order without meaning."""
    weights = np.arange(1, rows + 1) ** -skew
    falling = np.floor(look_ups * weights / weights.sum()).astype(np.int64)
    found: list[int] = falling[np.random.default_rng(rows).permutation(rows)].tolist()
    return found
