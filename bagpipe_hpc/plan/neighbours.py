"""Neighbours of a sample's node, drawn over some hops: a pure function of (seed, epoch, number of the sample).

So they are known ahead, as ids in a file are, and the same in whatever batch a sample comes and whoever draws them.

Legend: `N` nodes, `E` edges, `n` samples, `m` nodes whose neighbours are drawn, `f` neighbours of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.split_mix import GOLDEN, mix

MOST_DEGREE = (1 << 32) - 1
"""Neighbours of a node: a 64-bit word times a number is cut to its upper half in two steps of 32 bits."""
_LOW = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)


@dataclass(frozen=True)
class Graph:
    """Who is whose neighbour.

    Attributes:
        starts: where the neighbours of each node begin, and the end of the last, int64 `[N + 1]`.
        neighbours: node after node, int32 or int64 `[E]`, each from 0 to below N.
    """

    starts: Int64s
    neighbours: NDArray[Any]

    @property
    def nodes(self) -> int:
        """Number of nodes N."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class NeighbourDraws:
    """Draws the neighbours of samples.

    Of a node's neighbours `f` different ones are drawn, each set of them as likely as any other (Floyd's way: Bentley
    and Floyd, Programming pearls, 1987). A node with fewer than `f` has them drawn one by one, some of them several
    times, as in GraphSAGE (Hamilton et al. 2017). A node without any is its own neighbour. So a sample always has as
    many nodes of a hop.

    Attributes:
        fan_outs: neighbours of a node that are drawn at each hop, 1 or more each.
        key: stands for all but the samples; below 2**64.
    """

    fan_outs: tuple[int, ...]
    key: int

    @classmethod
    def of(cls, fan_outs: Sequence[int], seed: int, split: str, epoch: int | None) -> "NeighbourDraws":
        """Those of a split in an epoch.

        Args:
            fan_outs: as the attribute.
            seed: of the run, from 0, below 2**63.
            split: `train` or `test`.
            epoch: of training, from 0: each draws anew. None where samples are scored, always with the same neighbours.
        """
        stream = 2 * (0 if epoch is None else epoch + 1) + (split == "test")
        with np.errstate(over="ignore"):
            key = mix(mix(np.array([seed], np.uint64) * GOLDEN) + np.uint64(stream) * GOLDEN)
        return cls(tuple(fan_outs), int(key[0]))

    @property
    def hop_sizes(self) -> tuple[int, ...]:
        """Nodes of a sample at each hop."""
        return tuple(accumulate(self.fan_outs, mul))

    def draw(self, graph: Graph, nodes: Int64s, samples: Int64s) -> list[Int64s]:
        """The nodes of each hop.

        Args:
            graph: where they are.
            nodes: of the samples, int64 `[n]`, each from 0 to below N.
            samples: their numbers in the split, int64 `[n]`.

        Returns:
            Int64 `[n, nodes of the hop]` for each hop: the neighbours of the first node of the hop before come first.
        """
        hops, done, at = [], 0, nodes.reshape(-1, 1)
        with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is the point
            streams = mix(np.uint64(self.key) + samples.astype(np.uint64) * GOLDEN)
            for fan_out in self.fan_outs:
                width = at.shape[1]
                counters = np.arange(done + 1, done + width * fan_out + 1, fan_out, dtype=np.uint64)
                words = (streams[:, None] + counters * GOLDEN).reshape(-1)
                at = _neighbours(graph, at.reshape(-1), words, fan_out).reshape(len(nodes), width * fan_out)
                done += width * fan_out
                hops.append(at)
        return hops


def _neighbours(graph: Graph, nodes: Int64s, streams: NDArray[np.uint64], fan_out: int) -> Int64s:
    """Neighbours of some nodes.

    Args:
        graph: where they are.
        nodes: `[m]`.
        streams: of each node the place of its first word in its sample's stream, uint64 `[m]`.
        fan_out: neighbours `f` of each.

    Returns:
        Int64 `[m, f]`.
    """
    starts = graph.starts[nodes]
    degrees = graph.starts[nodes + 1] - starts
    has_enough = degrees >= fan_out
    chosen = np.empty((fan_out, len(nodes)), dtype=np.int64)
    for place in range(fan_out):
        newest = np.where(has_enough, degrees - fan_out + place, degrees - 1)
        drawn = _below(mix(streams + np.uint64(place) * GOLDEN), newest + 1)
        is_taken = has_enough & (chosen[:place] == drawn).any(axis=0)
        chosen[place] = np.where(is_taken, newest, drawn)
    is_alone = degrees == 0
    places = starts + chosen
    places[:, is_alone] = 0
    found: Int64s = graph.neighbours[places.T].astype(np.int64)
    found[is_alone] = nodes[is_alone, None]
    return found


def _below(words: NDArray[np.uint64], bounds: Int64s) -> Int64s:
    """Numbers from 0 to below each bound, `[m]`, 0 where that is 0: the upper 64 bits of word times bound."""
    limits = bounds.astype(np.uint64)
    upper = (words >> _HALF) * limits + (((words & _LOW) * limits) >> _HALF)
    return (upper >> _HALF).astype(np.int64)
