"""Edges and nodes become a graph and shards; what is wrong with them is said with its file, place and cure."""

import bz2
import errno
import functools
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import BagpipeError, CapacityError, ConfigError, DataError
from bagpipe_hpc.planning.policies.fae.profile import ProfileSettings, find_hot_rows
from bagpipe_hpc.storage.graphs.graph_file import map_graph
from bagpipe_hpc.storage.shards.check import damaged_files, verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from data_prep.graphs.edges import read_edges
from data_prep.graphs.nodes import read_nodes
from data_prep.graphs.prepare import prepare_graph
from data_prep.inputs.text_blocks import read_blocks
from data_prep.synthetic.graph import COMMUNITIES, generate_graph
from tests.graphs import write_graph_data

EDGES = "# a comment\n0\t1\n1\t0\n0\t2\n2\t2\n4\t0\n"
NODES = "node,label,size\n0,1,0.5\n4,0,2\n3,1,-1\n"


def prepared(tmp_path: Path, edges: str = EDGES, nodes: str = NODES, **settings: Any) -> ShardManifest:
    (tmp_path / "edges.tsv").write_text(edges)
    (tmp_path / "nodes.csv").write_text(nodes)
    return prepare_graph([str(tmp_path / "edges.tsv")], str(tmp_path / "nodes.csv"), tmp_path / "out", **settings)


def neighbours(folder: Path) -> list[list[int]]:
    manifest = load_manifest(folder)
    assert manifest.graph is not None
    graph = map_graph(folder / "graph.h5", manifest.table_rows[0], manifest.graph.edges)
    return [part.tolist() for part in np.split(graph.neighbours, graph.starts[1:-1])]


def test_edges_count_both_ways_once_and_not_to_the_node_itself(tmp_path: Path) -> None:
    prepared(tmp_path)
    assert neighbours(tmp_path / "out") == [[1, 2, 4], [0], [0], [], [0]]


def test_directed_edges_count_one_way(tmp_path: Path) -> None:
    manifest = prepared(tmp_path, directed=True, node_count=7)
    assert neighbours(tmp_path / "out") == [[1, 2], [0], [], [], [0], [], []]
    assert manifest.table_rows == (7,)


def test_nodes_are_samples(tmp_path: Path) -> None:
    manifest = prepared(tmp_path, test_fraction=0.4, rows_per_shard=1)
    assert (manifest.rows("train"), manifest.rows("test"), len(manifest.train)) == (2, 1, 2)
    assert load_manifest(tmp_path / "out") == manifest
    verify_shards(tmp_path / "out", manifest, "full")
    with ClickShards(tmp_path / "out", manifest, "train") as shards:
        assert shards.read_sparse(0, 2).tolist() == [[0], [4]]
        assert shards.read_labels(0, 2).tolist() == [1, 0]
        assert shards.read_dense(0, 2).tolist() == [[0.5], [2.0]]


def test_classes_become_labels(tmp_path: Path) -> None:
    manifest = prepared(tmp_path, nodes="kind,node,old\n2,0,1\n0,4,0\n2,3,0\n", labels=["kind", "old"], test_fraction=0)
    assert manifest.labels == ("kind_0", "kind_1", "kind_2", "old")
    with ClickShards(tmp_path / "out", manifest, "train") as shards:
        assert shards.read_labels(0, 3).tolist() == [[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("separator", [",", ";", " "])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, bytes])
def test_other_separators_and_compression(tmp_path: Path, separator: str, compress: Callable[[bytes], bytes]) -> None:
    """Compressed files are told by their first bytes; an empty line below the comments says nothing."""
    edges = EDGES.replace("\t", separator).replace("comment\n", "comment\n\n# another\n \n")
    (tmp_path / "edges").write_bytes(compress(edges.encode()))
    (tmp_path / "nodes").write_bytes(compress(NODES.encode()))
    prepare_graph([str(tmp_path / "edges")], str(tmp_path / "nodes"), tmp_path / "out")
    assert neighbours(tmp_path / "out") == [[1, 2, 4], [0], [0], [], [0]]


def test_edges_are_the_same_whatever_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments and edges go on in later blocks, where numbers of edges and lines go on, too."""
    text = "".join(f"# {number}\n" for number in range(20)) + "".join(f"{node} {node + 1}\n" for node in range(99))
    read = functools.partial(read_blocks, block_bytes=64)
    monkeypatch.setattr("data_prep.graphs.edges.read_blocks", read)
    (tmp_path / "edges").write_text(text)
    edges = read_edges([tmp_path / "edges"])
    assert edges.sources.tolist() == list(range(99))
    assert edges.targets.tolist() == list(range(1, 100))
    (tmp_path / "edges").write_text(text + "1 -1\n")
    with pytest.raises(DataError, match="edges:120: has node -1; nodes have numbers from 0"):
        read_edges([tmp_path / "edges"])
    (tmp_path / "edges").write_text(text + "1\n")
    with pytest.raises(DataError, match="edges:120: '1' is no edge"):
        read_edges([tmp_path / "edges"])


def test_a_node_must_be_left_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nodes.csv: 3 nodes leave none to train on; .*--test-fraction"):
        prepared(tmp_path, test_fraction=0.9)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("fraction", "tests"), [(0.1, 0), (0.3, 1), (0.6, 2), (0.83, 2)])
def test_the_share_for_tests_is_rounded_as_of_other_rows(tmp_path: Path, fraction: float, tests: int) -> None:
    manifest = prepared(tmp_path, test_fraction=fraction)
    assert (manifest.rows("train"), manifest.rows("test")) == (3 - tests, tests)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edges": "0\t1\n0\tx\n"}, r"edges\.tsv:2: '0\\tx' is no edge; an edge is a line of two node numbers"),
        ({"edges": "# a\n\n0\t1\t2\n"}, r"edges\.tsv:3: '0\\t1\\t2' is no edge; an edge is a line of two"),
        ({"edges": "0 1\n1  2\n"}, r"edges\.tsv:2: '1  2' is no edge"),
        ({"edges": "0, 1\n1,2,\n"}, r"edges\.tsv:2: '1,2,' is no edge"),
        ({"edges": "# a\n0x1\t1\n"}, r"edges\.tsv:2: '0x1\\t1' is no edge"),
        (
            {"edges": f"0\t1\n\n0\t{1 << 70}\n"},
            rf"edges\.tsv:3: has node {1 << 70}; nodes have numbers from 0",
        ),
        ({"edges": f"0\t{'7' * 5000}\n"}, r"edges\.tsv:1: has node 7{40}\.\.\.; nodes have numbers from 0 to below"),
        (
            {"edges": f"0\t1\n-{1 << 70}\t1\n"},
            rf"edges\.tsv:2: has node -{1 << 70}; nodes have numbers from 0",
        ),
        ({"nodes": "node,0x1\n1,1\n0,0x1\n"}, r"nodes\.csv:3: '0x1' is no decimal number; write 16 for 0x10"),
        ({"edges": "0\t1\n0\t-3\n"}, r"edges\.tsv:2: has node -3; nodes have numbers from 0"),
        ({"edges": "# a\r\n\r\n0\t1\r\n\r\n9\t-3\r\n-4\t5"}, r"edges\.tsv:5: has node -3; nodes have numbers from 0"),
        (
            {"edges": f"0\t{1 << 40}\n"},
            r"edges\.tsv:1: has node 1099511627776; nodes have numbers from 0 to below 3000000000: correct",
        ),
        ({"edges": "# nothing\n"}, r"edges\.tsv: no edge; name files"),
        ({"edges": "3\t3\n"}, r"edges\.tsv: no edge leads from one node to another"),
        ({"node_count": 3}, r"--node-count 3: an edge names node 4; nodes have numbers from 0 to 2: use 5 or more"),
        (
            {"nodes": "node,label\n7,1\n", "node_count": 6},
            r"--node-count 6: .*nodes\.csv names node 7; .* use 8 or more",
        ),
        ({"nodes": "id,label\n1,1\n"}, r"nodes\.csv: has no column 'node', or two; it has id, label"),
        ({"nodes": "node\n1\n"}, r"nodes\.csv: has no column 'label', or two"),
        ({"nodes": "node,label\n"}, r"nodes\.csv: has no node; name the nodes to train on"),
        ({"nodes": "node,label\n1,1\n1,0\n"}, r"nodes\.csv:3: node 1 comes again; name each node once"),
        ({"nodes": "node,label\n\n1,0\n\n2,\n"}, r"nodes\.csv:5: label is '' instead of a whole number; write a whole"),
        ({"nodes": "node,label\r\n1,1\r\n2,0.5"}, r"nodes\.csv:3: label is '0\.5', which is no integer; write a whole"),
        ({"nodes": "\nnode,label\n1,1\nNA,0\n"}, r"nodes\.csv:4: node is 'NA', which is no integer; write a whole"),
        (
            {"nodes": f"node,label\n1,1\n{1 << 70},0\n"},
            rf"nodes\.csv:3: node is '{1 << 70}', which does not fit 64 bits; write a whole",
        ),
        ({"nodes": "node,label\n1,0\n-1,0\n-2,0\n"}, r"nodes\.csv:3: node is -1; use 0 or more"),
        ({"nodes": "node,label\n1,4\n2,4000\n"}, r"nodes\.csv:3: label is class 4000; .* 1000 at most"),
        (
            {"nodes": "node,label,x\n1,0,1\n2,0, 2\n3,0,a\n4,0,b\n"},
            r"nodes\.csv:4: x is 'a', which is no number; all columns but 'node'",
        ),
        ({"nodes": "node,label,x\n1,0,1\n2,0,\n"}, r"nodes\.csv:3: x is '' instead of a number; all columns but"),
        ({"nodes": "node,label,x\n1,0,1\n2,0,nan\n"}, r"nodes\.csv:3: x is 'nan', which is no number; all columns"),
        ({"nodes": "node,label,x\n1,0,true\n"}, r"nodes\.csv:2: x is 'true', which is no number; all columns but"),
        ({"nodes": "node,label,x\n1,0,2\n2,0,1e99\n"}, r"nodes\.csv:3: x is '1e99', which is too large for float32"),
        (
            {"nodes": "node,label,x\n1,0,2\n\n2,0\n3,0,1,2\n"},
            r"nodes\.csv:4: 2 comma-separated fields instead of 3; write as many as the header has",
        ),
        ({"nodes": "\n\n"}, r"nodes\.csv: holds empty lines alone; write a CSV file with a header"),
        ({"nodes": "node,label,x,x\n1,0,1,2\n"}, r"nodes\.csv: column 'x' is there twice; name each column once"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        prepared(tmp_path, **changes)
    assert not (tmp_path / "out").exists()


def test_nodes_stand_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text(NODES)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.tsv").write_text(EDGES)
    with pytest.raises(DataError, match=r"--nodes .*\*\.csv: finds 2 files; name one"):
        prepare_graph([str(tmp_path / "edges.tsv")], str(tmp_path / "*.csv"), tmp_path / "out")


def test_a_name_of_a_column_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    for before in (b"", b"\n\n"):
        (tmp_path / "nodes").write_bytes(before + b"node,label,gr\xf6\xdfe\n1,1,2\n")
        with pytest.raises(DataError, match=r"name of a column is 'gr\\xf6\\xdfe', which is no UTF-8 text; convert"):
            read_nodes(tmp_path / "nodes", ["label"])


def test_numbers_of_nodes_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--label node: has the nodes' numbers; name a column of labels"):
        prepared(tmp_path, labels=["node"])


def test_large_whole_numbers_are_dense_features(tmp_path: Path) -> None:
    prepared(tmp_path, nodes=f"node,label,x\n1,0,{(1 << 53) + 1}\n2,1,3\n", node_count=5)


def test_a_damaged_file_of_edges_is_named(tmp_path: Path) -> None:
    damaged = bytearray(gzip.compress(b"0\t1\n" * 99))
    damaged[10] |= 0b110  # a kind of block that there is not
    (tmp_path / "edges.tsv.gz").write_bytes(damaged)
    with pytest.raises(DataError, match=r"edges\.tsv\.gz: cannot be read"):
        read_edges([tmp_path / "edges.tsv.gz"])


def test_one_stray_number_takes_no_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.graphs.edges.free_bytes", lambda: 10_000_000_000)
    with pytest.raises(
        CapacityError, match=r"2900000001 nodes, up to the highest number, .* take about 46.4 GB, and 10.0"
    ):
        prepared(tmp_path, edges="0\t1\n1\t2900000000\n")
    assert not (tmp_path / "out").exists()


def test_a_label_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    """Its folder could not be read."""
    with pytest.raises(ConfigError, match="--label label: is named twice; name each column of labels once"):
        prepared(tmp_path, labels=["label", "label"])
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced(tmp_path: Path) -> None:
    prepared(tmp_path)
    with pytest.raises(ConfigError, match=r"--output .*out: is there already, and is no empty folder"):
        prepared(tmp_path)


def test_an_output_that_cannot_be_written_is_refused_before_edges_are_read(tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text("no edge")
    (tmp_path / "nodes.csv").write_text(NODES)
    below_a_file = tmp_path / "nodes.csv" / "out"
    with pytest.raises(ConfigError, match=r"^--output = '.*out' cannot be written: .*nodes\.csv: Not a directory; cho"):
        prepare_graph([str(tmp_path / "edges.tsv")], str(tmp_path / "nodes.csv"), below_a_file)


def test_a_damaged_graph_is_found(tmp_path: Path) -> None:
    manifest = prepared(tmp_path)
    path = tmp_path / "out" / "graph.h5"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert damaged_files(tmp_path / "out", manifest, "quick") == []
    (said,) = damaged_files(tmp_path / "out", manifest, "full")
    assert "graph.h5: its SHA-256 is not the manifest's" in said
    path.unlink()
    (said,) = damaged_files(tmp_path / "out", manifest, "quick")
    assert "graph.h5: the graph is missing" in said


def test_a_generated_graph_has_communities_and_the_same_seed_gives_it_again(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "again", tmp_path / "other"]
    for folder, seed in zip(folders, (1, 1, 2), strict=True):
        write_graph_data(folder, 400, seed=seed)
    files = [(folder / "graph.h5").read_bytes() for folder in folders]
    assert files[0] == files[1] != files[2]
    found = neighbours(folders[0])
    assert max(map(len, found)) > 5 * np.median(list(map(len, found)))
    labels = dict(np.loadtxt(tmp_path / "first-raw" / "nodes.csv", delimiter=",", skiprows=1, dtype=int).tolist())
    alike = [labels[node] == labels[other] for node, near in enumerate(found) for other in near]
    assert 0.65 < np.mean(alike) < 0.85  # 0.82 by the shares of edges and labels, but for popular nodes


def test_a_graph_that_cannot_be_generated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"--nodes {COMMUNITIES - 1}: use {COMMUNITIES} or more"):
        generate_graph(COMMUNITIES - 1, tmp_path)
    for nodes, degree in ((10**14, 1.0), (COMMUNITIES, 1e308), (COMMUNITIES, float("nan"))):
        with pytest.raises(CapacityError, match=rf"{nodes} nodes and .* edges take .* GB of memory.*use fewer --nodes"):
            generate_graph(nodes, tmp_path, degree=degree)
    generate_graph(COMMUNITIES, tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        generate_graph(COMMUNITIES, tmp_path)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    assert main(["generate-graph", "--nodes", "50", "--output", str(raw)]) == 0
    files = ["--edges", str(raw / "edges.tsv"), "--nodes", str(raw / "nodes.csv")]
    assert main(["prepare-graph", *files, "--output", str(out), "--test-fraction", "0.2"]) == 0
    assert "40 nodes to train on, 10 for tests" in capsys.readouterr().err
    assert main(["inspect", str(out), "--verify"]) == 0
    assert "graph.h5" in capsys.readouterr().out


def test_rows_are_not_prepared_like_a_graph(tmp_path: Path) -> None:
    from data_prep.recorded import load_recorded

    prepared(tmp_path)
    with pytest.raises(BagpipeError, match="holds a graph, not rows of a source format; `bagpipe prepare-graph`"):
        load_recorded(tmp_path / "out")


def test_look_ups_that_are_drawn_are_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By nobody who would take the nodes of samples for all look-ups: figures, statistics, the hot rows of `fae`."""
    manifest = prepared(tmp_path)
    for arguments in (["--look-ups"], ["--statistics", str(tmp_path / "counts.npz")]):
        assert main(["inspect", str(tmp_path / "out"), *arguments]) != 0
        assert "a run draws their neighbours anew in each epoch" in capsys.readouterr().err
    with pytest.raises(DataError, match="look-ups cannot be counted ahead"):
        find_hot_rows(tmp_path / "out", manifest, ProfileSettings(3, 100.0, 1))


@pytest.mark.parametrize(
    ("number", "error", "told"),
    [
        (errno.ENOSPC, CapacityError, "the disk is full; free some space, or draw fewer nodes"),
        (errno.EROFS, ConfigError, "cannot be written"),
    ],
)
def test_a_graph_that_cannot_be_written_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception], told: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pyarrow.csv.write_csv", refuse)
    with pytest.raises(error, match=f"{tmp_path / 'graph'}: {told}"):
        generate_graph(100, tmp_path / "graph")
