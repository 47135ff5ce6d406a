"""A small graph of the generator, prepared: for tests that train on one or break its files."""

from pathlib import Path
from typing import Any

from bagpipe_hpc.storage.shards.manifest import ShardManifest
from data_prep.graphs.prepare import prepare_graph
from data_prep.synthetic.graph import EDGES_NAME, NODES_NAME, generate_graph


def write_graph_data(folder: Path, nodes: int = 60, *, seed: int = 1, **settings: Any) -> ShardManifest:
    """Generate a graph beside `folder` and prepare it there; `settings` are those of `prepare_graph`."""
    raw = folder.with_name(f"{folder.name}-raw")
    generate_graph(nodes, raw, degree=5.0, seed=seed)
    return prepare_graph([str(raw / EDGES_NAME)], str(raw / NODES_NAME), folder, **settings)
