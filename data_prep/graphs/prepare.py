"""From edges and nodes as text to a folder for training: the file of the graph, and shards of nodes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.graphs.graph_file import GRAPH_NAME, write_graph
from bagpipe_hpc.storage.output_errors import require_writable, writing_to
from bagpipe_hpc.storage.shards.entries import FeatureInfo, ShardInfo, TableInfo, id_dtype, shard_name
from bagpipe_hpc.storage.shards.manifest import SCHEMA_VERSION, ShardManifest, save_manifest
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.storage.shards.writer import write_shard
from bagpipe_hpc.terminal import counted
from data_prep.graphs.edges import MOST_NODES, build_graph, read_edges, require_memory
from data_prep.graphs.nodes import NODE, Nodes, read_nodes
from data_prep.inputs.files import find_sources
from data_prep.preparation_state import describe_inputs

SOURCE_FORMAT = "graph"


def prepare_graph(
    edges: Sequence[str],
    nodes: str,
    output: Path,
    *,
    labels: Sequence[str] = ("label",),
    directed: bool = False,
    node_count: int | None = None,
    test_fraction: float = 0.1,
    rows_per_shard: int = 1 << 20,
    progress: Callable[[str], None] = lambda _: None,
) -> ShardManifest:
    """Prepare a graph; the same files give the same samples and the same graph.

    Args:
        edges: files of edges, or patterns (`read_edges`).
        nodes: the file of the nodes that are samples (`read_nodes`).
        output: folder to write, which is made; the manifest comes last.
        labels: names of the columns of labels.
        directed: whether an edge leads in one direction only.
        node_count: rows of the table of nodes; None for the highest node number + 1.
        test_fraction: share of the samples, the last ones, that become the test split.
        rows_per_shard: samples of a shard, 1 or more.
        progress: called with lines of text.

    Raises:
        DataError: an input is malformed, or names nodes beyond `node_count`, or no node is left to train on.
        ConfigError: a label is named twice; `output` holds something, or cannot be written.
        CapacityError: the disk is full.
    """
    if twice := next((name for name, count in Counter(labels).items() if count > 1), None):
        raise ConfigError(f"--label {twice}: is named twice; name each column of labels once")
    sources, (of_nodes, *others) = find_sources(edges), find_sources([nodes])
    if others:
        raise DataError(
            f"--nodes {nodes}: finds {len(others) + 1} files; name one, which has all nodes that are samples"
        )
    _require_empty(output)
    require_writable("--output", str(output), output)
    read, samples = read_edges(sources), read_nodes(of_nodes, labels)
    highest = max(read.nodes, int(samples.numbers.max()) + 1)
    count = highest if node_count is None else node_count
    if highest > count:
        where = "an edge" if read.nodes > count else str(of_nodes)
        raise DataError(
            f"--node-count {count}: {where} names node {highest - 1}; nodes have numbers from 0 to {count - 1}: use "
            f"{highest} or more"
        )
    if count > MOST_NODES:
        raise DataError(f"{count} nodes: use {MOST_NODES} at most")
    require_memory(read, count, directed=directed)
    train_rows = len(samples.numbers) - round(len(samples.numbers) * test_fraction)
    if not train_rows:
        raise DataError(
            f"{of_nodes}: {counted(len(samples.numbers), 'node')} leave none to train on; name more, or use a smaller "
            "--test-fraction"
        )
    graph, loops = build_graph(read, count, directed=directed)
    alone = int((np.diff(graph.starts) == 0).sum())
    progress(
        f"{count} nodes, {len(graph.neighbours)} neighbours of them from {len(read.sources)} edges ({loops} from a "
        f"node to itself are left out); {alone} nodes have none, and look themselves up instead"
    )
    if not len(graph.neighbours):
        raise DataError(f"{', '.join(file.name for file in sources)}: no edge leads from one node to another")
    with writing_to(output, " and prepare again", ConfigError):
        output.mkdir(parents=True, exist_ok=True)
        entry = write_graph(output / GRAPH_NAME, graph)
        sparse = id_dtype(count)
        train = tuple(_write(output, "train", samples, (0, train_rows), rows_per_shard, sparse))
        test = tuple(_write(output, "test", samples, (train_rows, len(samples.numbers)), rows_per_shard, sparse))
        manifest = ShardManifest(
            schema_version=SCHEMA_VERSION,
            source_format=SOURCE_FORMAT,
            dense_features=samples.dense.shape[1],
            tables=(TableInfo(NODE, count),),
            train=train,
            test=test,
            inputs=describe_inputs([*sources, of_nodes]),
            settings={"directed": directed, "test_fraction": test_fraction},
            features=(FeatureInfo(NODE, NODE),),
            labels=samples.label_names,
            graph=entry,
        )
        save_manifest(output, manifest)
    progress(f"{output}: {train_rows} nodes to train on, {len(samples.numbers) - train_rows} for tests")
    return manifest


def _require_empty(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--output {output}: is there already, and is no empty folder; name another, or remove it")


def _write(
    output: Path, split: str, nodes: Nodes, rows: tuple[int, int], rows_per_shard: int, sparse: str
) -> Iterator[ShardInfo]:
    """Write the shards of a split."""
    for number, first in enumerate(range(*rows, rows_per_shard)):
        part = slice(first, min(first + rows_per_shard, rows[1]))
        labels = nodes.labels[part]
        samples = Samples(
            nodes.dense[part],
            nodes.numbers[part].astype(sparse).reshape(-1, 1),
            labels if labels.shape[1] > 1 else labels[:, 0],
        )
        yield write_shard(output / shard_name(split, number), len(samples), [samples])
