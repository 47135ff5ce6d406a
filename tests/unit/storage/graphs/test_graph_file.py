"""A graph is what was written, and a file that is damaged or of another graph is refused by name."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.neighbours import Graph
from bagpipe_hpc.storage.graphs.graph_file import check_graph_datasets, map_graph, write_graph

GRAPH = Graph(np.array([0, 2, 2, 3, 5], np.int64), np.array([1, 3, 0, 2, 1], np.int32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_graph(tmp_path / "graph.h5", GRAPH)
    return tmp_path / "graph.h5"


def test_a_graph_is_what_was_written(path: Path) -> None:
    found = map_graph(path, 4, 5)
    assert (found.starts.tolist(), found.neighbours.tolist()) == (GRAPH.starts.tolist(), GRAPH.neighbours.tolist())
    assert (found.nodes, found.neighbours.dtype) == (4, np.int32)


def test_the_same_graph_is_the_same_file(path: Path) -> None:
    entry = write_graph(path.with_name("again.h5"), GRAPH)
    assert path.read_bytes() == path.with_name("again.h5").read_bytes()
    assert (entry.file, entry.bytes, entry.edges) == ("again.h5", path.stat().st_size, 5)


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        (5, 5, r"starts is int64 \[5\] instead of int64 \[6\], as the table of nodes and the manifest say"),
        (4, 6, r"neighbours is int32 \[5\] instead of int32 \[6\]"),
    ],
)
def test_a_graph_of_another_size_is_refused(path: Path, nodes: int, edges: int, said: str) -> None:
    for look in (map_graph, check_graph_datasets):
        with pytest.raises(DataError, match=said):
            look(path, nodes, edges)


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("neighbours", 3, 4, r"an edge leads from node 3 to 4, outside 0 \.\. 3"),
        ("neighbours", 2, -1, r"an edge leads from node 2 to -1, outside 0 \.\. 3"),
        ("starts", 1, 3, "starts do not go up from 0 to the 5 neighbours"),
        ("starts", 0, 1, "starts do not go up from 0 to the 5 neighbours"),
        ("starts", 4, 4, "starts do not go up from 0 to the 5 neighbours"),
    ],
)
def test_wrong_numbers_are_found(path: Path, name: str, place: int, value: int, said: str) -> None:
    with h5py.File(path, "r+") as file:
        file[name][place] = value
    with pytest.raises(DataError, match=f"{said}.*run bagpipe prepare-graph again"):
        map_graph(path, 4, 5)


def replaced(path: Path, **options: object) -> None:
    with h5py.File(path, "r+") as file:
        del file["neighbours"]
        if options:
            file.create_dataset("neighbours", (5,), np.int32, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it has no dataset neighbours"),
        ({"chunks": (5,), "data": GRAPH.neighbours, "compression": "gzip"}, "neighbours is not stored in full"),
        ({"external": [("elsewhere", 0, 20)]}, "neighbours is not stored in full"),
    ],
)
def test_a_dataset_that_is_not_there_in_full(path: Path, options: dict[str, object], said: str) -> None:
    replaced(path, **options)
    with pytest.raises(DataError, match=said):
        map_graph(path, 4, 5)


def test_a_missing_file_and_one_of_something_else(path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        map_graph(path.with_name("none.h5"), 4, 5)
    path.write_text("no HDF5")
    with pytest.raises(DataError, match="cannot be read"):
        map_graph(path, 4, 5)
