"""Those who share an evaluation: what each of them hands to the others."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from bagpipe_hpc.evaluation.pairs import PairCounts

_Value = TypeVar("_Value")


class Peers(Protocol):
    """All trainers of a run, as one of them sees them; its methods are collective over them.

    Attributes:
        count: how many they are, this one included.
    """

    count: int

    def all_of(self, value: _Value) -> list[_Value]:
        """The values of all, in their order; the same list on each. A value is small, and of plain Python."""

    def trade(self, parts: Sequence[PairCounts]) -> list[PairCounts]:
        """Give part i to peer i; returns what all peers gave to this one, in their order."""


class Alone:
    """One process that has all samples itself."""

    count = 1

    def all_of(self, value: _Value) -> list[_Value]:
        """Its own value."""
        return [value]

    def trade(self, parts: Sequence[PairCounts]) -> list[PairCounts]:
        """Its own part."""
        return list(parts)


def spread(counts: PairCounts, peers: Peers) -> PairCounts:
    """Share out the counts of all peers by ranges of keys: peer 0 gets the lowest, the last one the highest.

    A sample sort (Shi and Schaeffer, "Parallel Sorting by Regular Sampling", 1992): each names as many evenly spaced
    keys of its own as there are peers, and the ranges are cut at evenly spaced ones of these. So where peers have
    similar numbers of keys, none gets more than about twice an even share.

    Collective over: the peers.

    Returns:
        What this peer has to count: a key is with one peer alone.
    """
    if peers.count == 1:
        return counts
    chosen = counts.keys[np.arange(peers.count) * counts.keys.size // peers.count].tolist() if counts.keys.size else []
    known = sorted(key for keys in peers.all_of(chosen) for key in keys)
    cuts = np.asarray([known[place * len(known) // peers.count] for place in range(1, peers.count)] if known else [])
    inner = np.searchsorted(counts.keys, cuts.astype(np.uint64)).tolist()
    bounds = [0, *inner, counts.keys.size] if known else [0] * (peers.count + 1)
    parts = [counts.between(*pair) for pair in pairwise(bounds)]
    return PairCounts.merged(peers.trade(parts))
