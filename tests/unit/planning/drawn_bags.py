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
