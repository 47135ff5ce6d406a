"""What is read: prepared clicks, the features of a sample, its neighbours in a graph."""

import math
from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.config.checks import require, require_one_of, require_threads

SEQUENCE = "sequence"
POOLINGS = ("sum", "mean", SEQUENCE)
"""What may become of the rows that a sample looks up for a feature."""
VERIFY_LEVELS = ("full", "quick")
_MOST_HOPS = 4
_MOST_DRAWN = 1 << 16
"""Nodes of a sample at a hop, as many as a sequence may have rows."""


@dataclass(frozen=True)
class DataConfig:
    """Where the prepared clicks are and how they are read."""

    path: str = ""
    """Shard directory written by `bagpipe prepare`."""
    block_rows: int = 8192
    """Rows that are read as one contiguous piece; an epoch's order permutes the blocks, then the rows inside each."""
    shuffle: bool = True
    """Permute the training rows anew in every epoch; false keeps the order of the shards."""
    lanes: int = 0
    """Number of blocks, from all over the data, that are open at once; each batch takes equally many rows of each. So a
    trainer reads only the blocks of its own slice; with 1 lane it reads all that the batch has (docs/sample-order.md).
    Fewer lanes are used where one would have less than 8 blocks. 0 takes as many as the data have room for with 32
    blocks each, 1,024 at most. Without effect if `shuffle` is false or a policy orders the samples."""
    verify: str = "full"
    """`full` checks every shard's checksum before training; `quick` checks sizes and shapes only."""
    reader_threads: int = 0
    """Threads in which the oracle reads samples ahead of planning; 0 takes one for each core that it may use, 8 at
    most."""

    def __post_init__(self) -> None:
        require(self.block_rows >= 1, "data.block_rows", self.block_rows, "use 1 or more rows")
        require_threads("data.reader_threads", self.reader_threads, "those that the cores allow")
        require(self.lanes >= 0, "data.lanes", self.lanes, "use 1 or more lanes, or 0 for those that the data allow")
        require_one_of("data.verify", self.verify, VERIFY_LEVELS)


@dataclass(frozen=True)
class FeaturesConfig:
    """What happens to the rows that a sample looks up for a feature with any number of ids."""

    pooling: str = "sum"
    """What a model gets of the rows of a sample and feature: their `sum`, their `mean` (by the number of ids, whatever
    weights these have), or all of them as a `sequence`. Without ids it gets zeros, or an empty sequence."""
    pooling_of: dict[str, Any] = field(default_factory=dict)
    """The same for single features, such as `{ history = "sequence", genres = "mean" }`."""
    longest: int = 0
    """The most ids of a sample and feature that are used, the last ones; 0 takes all."""
    longest_of: dict[str, Any] = field(default_factory=dict)
    """The same for single features, such as `{ history = 50 }`."""

    def __post_init__(self) -> None:
        cure = f"use one of {', '.join(POOLINGS)}"
        require(self.pooling in POOLINGS, "features.pooling", self.pooling, cure)
        require(
            all(pooling in POOLINGS for pooling in self.pooling_of.values()),
            "features.pooling_of",
            self.pooling_of,
            f"{cure} for each feature",
        )
        require(self.longest >= 0, "features.longest", self.longest, "use 1 id or more, or 0 for all")
        require(
            all(type(longest) is int and longest >= 0 for longest in self.longest_of.values()),
            "features.longest_of",
            self.longest_of,
            "use 1 id or more for each feature, or 0 for all",
        )


@dataclass(frozen=True)
class GraphConfig:
    """Which neighbours of a sample's node are looked up, where the data has a graph (docs/graphs.md)."""

    fan_outs: tuple[int, ...] = ()
    """Number of neighbours of a node that are drawn at each hop, such as `[10, 5]`: ten of the sample's node, then five
    of each of these. Data with a graph needs it, other data has no use for it."""

    def __post_init__(self) -> None:
        is_count = min(self.fan_outs, default=1) >= 1 and len(self.fan_outs) <= _MOST_HOPS
        cure = f"use 1 to {_MOST_HOPS} hops of 1 neighbour or more each, such as [10, 5]"
        require(is_count, "graph.fan_outs", list(self.fan_outs), cure)
        drawn = math.prod(self.fan_outs)
        cure = f"a sample has {drawn} nodes at its last hop; use fewer, {_MOST_DRAWN} at most"
        require(drawn <= _MOST_DRAWN, "graph.fan_outs", list(self.fan_outs), cure)
