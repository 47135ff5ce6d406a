"""A synthetic graph: communities of nodes, a few nodes with very many neighbours, and labels that follow communities.

A model that looks at a node's neighbours finds its community, even for a node that it was not trained on.

Legend: `N` nodes, `E` edges.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import writing_to
from data_prep.synthetic.drawing import popularity

EDGES_NAME, NODES_NAME = "edges.tsv", "nodes.csv"
COMMUNITIES = 8
"""Number of communities; the label of nodes is 1 in every other one."""
_WITHIN = 0.8
"""Share of edges that stay within a community; the others lead anywhere."""
_WRONG = 0.1
"""Share of labels that are flipped."""
_NODE_BYTES, _EDGE_BYTES = 48, 64
"""Most memory for each while a graph is drawn; graphs of three other shapes took three quarters of it."""


def generate_graph(nodes: int, output: Path, *, degree: float = 10.0, zipf: float = 0.8, seed: int = 1) -> None:
    """Write `edges.tsv` and `nodes.csv` for `bagpipe prepare-graph`; the same arguments give the same files.

    Args:
        nodes: number of nodes N, `COMMUNITIES` or more.
        output: folder to write, which is made.
        degree: neighbours of a node on average; E is half of it times N.
        zipf: a node's share of the ends of edges is proportional to rank ** -zipf; ranks are unrelated to node numbers.
        seed: determines everything that is drawn, 0 or more.

    Raises:
        ConfigError: there are too few nodes, or a file exists or cannot be written.
        CapacityError: this host lacks the memory to draw so many, or the disk is full.
    """
    if nodes < COMMUNITIES:
        raise ConfigError(f"generate-graph: --nodes {nodes}: use {COMMUNITIES} or more, one of each community")
    _require_memory(nodes, nodes * degree / 2)
    rng = np.random.default_rng([seed, 3])
    by_rank = rng.permutation(nodes)
    community = np.empty(nodes, dtype=np.int64)
    community[by_rank] = np.arange(nodes) % COMMUNITIES  # every community has popular nodes
    edges = max(1, int(nodes * degree / 2))
    sources = np.searchsorted(popularity(nodes, zipf), rng.random(edges), side="right")
    anywhere = np.searchsorted(popularity(nodes, zipf), rng.random(edges), side="right")
    # About the same rank, in the source's community: ranks of a community are COMMUNITIES apart.
    within = anywhere - anywhere % COMMUNITIES + sources % COMMUNITIES
    within = np.where(within < nodes, within, within - COMMUNITIES)
    targets = np.where(rng.random(edges) < _WITHIN, within, anywhere)
    flipped = rng.random(nodes) < _WRONG
    order = rng.permutation(nodes)
    labels = (community % 2 == 1) ^ flipped
    with writing_to(output, ", or draw fewer nodes", ConfigError):
        output.mkdir(parents=True, exist_ok=True)
        tables = {
            EDGES_NAME: pa.table({"source": by_rank[sources], "target": by_rank[targets]}),
            NODES_NAME: pa.table({"node": order, "label": labels[order].astype(np.int8)}),
        }
        for name in tables:
            if (output / name).exists():
                raise ConfigError(f"{output / name}: is there already; remove it, or use another folder")
        for name, table in tables.items():
            options = pa_csv.WriteOptions(
                include_header=name == NODES_NAME,
                delimiter="," if name == NODES_NAME else "\t",
                quoting_style="none",
            )
            with atomic_write(output / name) as partial:
                pa_csv.write_csv(table, partial, options)


def _require_memory(nodes: int, edges: float) -> None:
    needed, free = _NODE_BYTES * nodes + _EDGE_BYTES * edges, free_bytes()
    if not needed <= free:
        raise CapacityError(
            f"generate-graph: {nodes} nodes and {edges:.3g} edges take {needed / 1e9:.3g} GB of memory, and this host "
            f"has {free / 1e9:.3g} GB free: use fewer --nodes, or a smaller --degree"
        )
