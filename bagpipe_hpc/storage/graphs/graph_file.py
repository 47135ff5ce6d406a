"""The file of a graph (`plan.neighbours.Graph`): HDF5, with the datasets `starts` and `neighbours`, uncompressed.

It is mapped into memory, not read: processes of a host share it, and it may be larger than what is free.

Legend: `N` nodes, `E` edges.
"""

from pathlib import Path

import h5py
import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.neighbours import MOST_DEGREE, Graph
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.entries import GraphInfo, id_dtype
from bagpipe_hpc.storage.shards.shard_file import errors_name, is_own, is_stored, open_shard

GRAPH_NAME = "graph.h5"
_PREPARE_AGAIN = "run bagpipe prepare-graph again into a new folder"
_AT_ONCE = 1 << 22
"""Neighbours that are looked at together."""


def write_graph(path: Path, graph: Graph) -> GraphInfo:
    """Write a graph, whole or not at all; the same graph gives the same bytes.

    Returns:
        The entry for the manifest.

    Raises:
        OSError: the system refuses to write.
    """
    with atomic_write(path) as partial:
        with create_hdf5(partial) as file:
            file.create_dataset("starts", data=graph.starts, track_times=False)
            neighbours = graph.neighbours.astype(id_dtype(graph.nodes), copy=False)
            file.create_dataset("neighbours", data=neighbours, track_times=False)
        return GraphInfo(path.name, partial.stat().st_size, file_sha256(partial), len(graph.neighbours))


def map_graph(path: Path, nodes: int, edges: int) -> Graph:
    """Map the graph of a file, and look at all of it once.

    Args:
        path: of the file.
        nodes: that it must have, N.
        edges: that it must have, E.

    Raises:
        DataError: the file is missing, damaged or of another graph, or an edge leads to a node that does not exist.
    """
    kind = id_dtype(nodes)
    with open_shard(path) as file, errors_name(path):
        first_start = _offset(path, file, "starts", nodes + 1, "int64")
        first_neighbour = _offset(path, file, "neighbours", edges, kind)
    with errors_name(path):
        starts = np.memmap(path, np.int64, "r", first_start, (nodes + 1,))
        neighbours = np.memmap(path, kind, "r", first_neighbour, (edges,))
    graph = Graph(starts.view(np.ndarray), neighbours.view(np.ndarray))
    _check(path, graph)
    return graph


def check_graph_datasets(path: Path, nodes: int, edges: int) -> None:
    """Check that a file has the datasets of such a graph; arguments as for `map_graph`.

    Raises:
        DataError: the file is missing or damaged, or a dataset is of another shape or type.
    """
    with open_shard(path) as file, errors_name(path):
        _offset(path, file, "starts", nodes + 1, "int64")
        _offset(path, file, "neighbours", edges, id_dtype(nodes))


def _offset(path: Path, file: h5py.File, name: str, length: int, kind: str) -> int:
    """Where a dataset of this length and type lies in the file."""
    dataset = file[name] if is_own(file, name) else None
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(f"{path}: it has no dataset {name}; {_PREPARE_AGAIN}")
    if dataset.shape != (length,) or dataset.dtype != kind:
        raise DataError(
            f"{path}: {name} is {dataset.dtype} {list(dataset.shape or ())} instead of {kind} [{length}], as "
            f"the table of nodes and the manifest say; the two do not belong together: {_PREPARE_AGAIN}"
        )
    offset = dataset.id.get_offset()
    is_whole = dataset.chunks is None and is_stored(dataset) and offset is not None
    if not is_whole or offset + dataset.nbytes > file.id.get_filesize():
        raise DataError(f"{path}: {name} is not stored in full, uncompressed, inside this file; {_PREPARE_AGAIN}")
    return int(offset)


def _check(path: Path, graph: Graph) -> None:
    """Check that every edge leads from a node to a node."""
    starts, neighbours = graph.starts, graph.neighbours
    degrees: Int64s = np.diff(starts)
    if starts[0] != 0 or starts[-1] != len(neighbours) or degrees.min(initial=0) < 0:
        raise DataError(f"{path}: starts do not go up from 0 to the {len(neighbours)} neighbours; {_PREPARE_AGAIN}")
    if degrees.max(initial=0) > MOST_DEGREE:
        raise DataError(f"{path}: node {degrees.argmax()} has {degrees.max()} neighbours; {MOST_DEGREE} at most")
    for first in range(0, len(neighbours), _AT_ONCE):
        part = neighbours[first : first + _AT_ONCE]
        if part.min() < 0 or part.max() >= graph.nodes:
            wrong = first + int(np.flatnonzero((part < 0) | (part >= graph.nodes))[0])
            node = int(np.searchsorted(starts, wrong, side="right")) - 1
            raise DataError(
                f"{path}: an edge leads from node {node} to {neighbours[wrong]}, outside 0 .. {graph.nodes - 1}; "
                f"{_PREPARE_AGAIN}"
            )
