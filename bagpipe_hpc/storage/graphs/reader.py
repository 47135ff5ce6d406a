"""Samples of nodes: shards hold the node of each, and its neighbours over some hops are drawn, not read.

Whoever reads the shards need not know: ids are asked for by the numbers of samples, and with the same draws
the same sample always has the same ids.

Shapes: `n` samples of a range, `H` nodes of all hops of a sample.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bagpipe_hpc.plan.bags import Bags, Int64s
from bagpipe_hpc.plan.neighbours import Graph, NeighbourDraws
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.raw_chunks import ChunkDecoder
from bagpipe_hpc.storage.shards.reader import ClickShards


class GraphShards(ClickShards):
    """As `ClickShards`, of shards of nodes, whose look-ups are a node and the neighbours that are drawn.

    Args:
        directory: the shard directory.
        manifest: its manifest, with the one feature that shards hold.
        split: `train` or `test`.
        graph: gives the graph when look-ups are first asked for; trainers never ask.
        draws: draws the neighbours.
        decoder: as of `ClickShards`.
    """

    def __init__(
        self,
        directory: Path,
        manifest: ShardManifest,
        split: str,
        graph: Callable[[], Graph],
        draws: NeighbourDraws,
        decoder: ChunkDecoder | None = None,
    ) -> None:
        super().__init__(directory, manifest, split, decoder=decoder)
        self._graph = graph
        self._draws = draws

    @property
    def has_ragged_features(self) -> bool:
        """True: each hop is a feature with several ids."""
        return True

    def read_look_ups(self, first: int, last: int) -> Bags:
        """Nodes of samples `first` up to `last`, int64 `[n * (1 + H)]`: each sample's own, then hop after hop.

        Raises:
            DataError: a shard or the graph is missing or damaged, or a node is outside its table.
        """
        nodes = self.read_sparse(first, last)
        hops = self._draws.draw(self._graph(), nodes[:, 0], np.arange(first, last))
        return Bags.ragged(np.concatenate((nodes, *hops), axis=1).reshape(-1), self.read_lengths(first, last))

    def read_lengths(self, first: int, last: int) -> Int64s:
        """Number of nodes of samples `first` up to `last`, int64 `[n, 1 + hops]`: all samples have as many."""
        sizes = np.array((1, *self._draws.hop_sizes), dtype=np.int64)
        return np.tile(sizes, (last - first, 1))
