"""Readers of shards see drawn look-ups as if they were stored, whichever range they ask for."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.plan.neighbours import Graph, NeighbourDraws
from bagpipe_hpc.storage.graphs.graph_file import map_graph
from bagpipe_hpc.storage.graphs.reader import GraphShards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from tests.graphs import write_graph_data

DRAWS = NeighbourDraws.of((3, 2), 5, "train", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("graphs") / "data"
    write_graph_data(found, 60, rows_per_shard=20)
    return found


def opened(folder: Path, shards: type[GraphShards] = GraphShards) -> GraphShards:
    manifest = load_manifest(folder)
    assert manifest.graph is not None
    edges = manifest.graph.edges
    return shards(folder, manifest, "train", lambda: map_graph(folder / "graph.h5", 60, edges), DRAWS)


def parts_agree(shards: GraphShards) -> bool:
    """Whether samples look up the same in a range of their own as in that of all."""
    whole = shards.read_look_ups(0, shards.rows)
    parts = [shards.read_look_ups(first, first + 9) for first in range(0, shards.rows, 9)]
    return np.array_equal(np.concatenate([part.values for part in parts]), whole.values)


class CountsFromTheRange(GraphShards):
    def read_look_ups(self, first, last):  # type: ignore[no-untyped-def]
        nodes = self.read_sparse(first, last)
        hops = self._draws.draw(self._graph(), nodes[:, 0], np.arange(last - first))
        return (
            super()
            .read_look_ups(first, last)
            .__class__.ragged(np.concatenate((nodes, *hops), axis=1).reshape(-1), self.read_lengths(first, last))
        )


def test_look_ups_do_not_depend_on_the_range(folder: Path) -> None:
    with opened(folder) as shards:
        assert shards.rows == 54
        assert parts_agree(shards)
    with opened(folder, CountsFromTheRange) as broken:
        assert not parts_agree(broken)


def test_samples_have_their_node_and_the_nodes_of_each_hop(folder: Path) -> None:
    with opened(folder) as shards:
        found = shards.read_look_ups(10, 30)
        nodes = shards.read_sparse(10, 30)
    assert found.lengths.tolist() == [[1, 3, 6]] * 20
    assert np.array_equal(found.values.reshape(20, 10)[:, :1], nodes)


def test_lengths_need_no_graph(folder: Path) -> None:
    def no_graph() -> Graph:
        raise AssertionError("nobody has asked for look-ups")

    with GraphShards(folder, load_manifest(folder), "test", no_graph, DRAWS) as shards:
        assert shards.has_ragged_features
        assert shards.read_lengths(1, 3).tolist() == [[1, 3, 6]] * 2
        assert shards.read_labels(0, 6).shape == (6,)


def test_a_graph_is_part_of_the_data(folder: Path) -> None:
    """In its digest, so that a checkpoint of another graph is of other data; and its manifest is read as written."""
    manifest = load_manifest(folder)
    assert ShardManifest.from_json(manifest.to_json()) == manifest
    assert manifest.graph is not None
    document = manifest.to_json().replace(manifest.graph.sha256, "0" * 64)
    other = ShardManifest.from_json(document)
    assert {other.digest(split) != manifest.digest(split) for split in ("train", "test")} == {True}
