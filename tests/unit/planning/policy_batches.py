"""Skewed batches of three tables, and the facts of a run over them, for tests of policies."""

from typing import Any

import numpy as np

from bagpipe_hpc.config.schema import KernelsConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.policy import RunFacts
from tests.unit.planning.drawn_bags import bags_of, drawn_lengths

OFFSETS = np.asarray([0, 40, 100, 101])


def batches(
    seed: int, count: int = 12, samples: int = 9, most: int = 0, tables: tuple[int, ...] = (0, 1, 2)
) -> list[Bags]:
    """Skewed rows of three tables, one-hot or in bags of up to `most`; the last batch has a single sample."""
    rng = np.random.default_rng(seed)
    firsts, sizes = OFFSETS[list(tables)], np.diff(OFFSETS)[list(tables)]

    def drawn() -> Bags:
        rows = firsts + (sizes * rng.random((samples, max(1, most), len(tables))) ** 3).astype(np.int64)
        return bags_of(rows.transpose(0, 2, 1), drawn_lengths(rng, samples, len(tables), most))

    found = [drawn() for _ in range(count)]
    return [*found[:-1], found[-1].part(0, 1)]


def facts(trainers: int, tables: tuple[int, ...] = (), **kernels: Any) -> RunFacts:
    return RunFacts(OFFSETS, trainers, batch_size=9, kernels=KernelsConfig(**kernels), feature_tables=tables)
