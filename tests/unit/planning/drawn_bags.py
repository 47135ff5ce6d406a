"""Bags drawn at random, for tests of planners."""

import numpy as np

from bagpipe_hpc.plan.bags import Bags


def bags_of(rows: np.ndarray, lengths: np.ndarray | None = None) -> Bags:
    """The first rows of each bag.

    Args:
        rows: more rows than are taken, `[n, F, most]`.
        lengths: how many each bag has, 0 to most, `[n, F]`; None for one row each.
    """
    if lengths is None:
        return Bags.one_hot(rows[..., 0])
    return Bags.ragged(rows[np.arange(rows.shape[2]) < lengths[..., np.newaxis]].astype(np.int64), lengths)


def drawn_lengths(rng: np.random.Generator, samples: int, features: int, most: int) -> np.ndarray | None:
    """Lengths of up to `most`, `[n, F]`, a third of the features with empty bags mostly; None for one-hot features."""
    if most == 0:
        return None
    lengths = rng.integers(0, most, (samples, features), endpoint=True)
    return np.where(rng.random(features) < 1 / 3, lengths * (rng.random((samples, features)) < 0.1), lengths)


def skewed_batches(seed: int, table_rows: tuple[int, ...], count: int = 12, samples: int = 9) -> list[Bags]:
    """One-hot batches whose low ids are used most, a feature a table; the last batch has a single sample."""
    rng = np.random.default_rng(seed)
    firsts = np.cumsum(table_rows) - table_rows
    drawn = rng.random((count, samples, len(table_rows))) ** 3
    found = [Bags.one_hot(firsts + (of_batch * table_rows).astype(np.int64)) for of_batch in drawn]
    return [*found[:-1], found[-1].part(0, 1)]


def bags_of_lists(lists: list[list[list[int]]]) -> Bags:
    """Bags `[sample][feature]` of rows, of three features."""
    values = [row for sample in lists for bag in sample for row in bag]
    lengths = np.asarray([[len(bag) for bag in sample] for sample in lists], dtype=np.int64).reshape(-1, 3)
    return Bags.ragged(np.asarray(values, dtype=np.int64), lengths)
