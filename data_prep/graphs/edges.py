"""Edges of a graph: lines of two node numbers become a list of neighbours for each node.

All edges are in memory at once: up to about 50 bytes for each direction of an edge.

Legend: `N` nodes, `E` edges that are read.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.neighbours import Graph
from bagpipe_hpc.storage.shards.entries import id_dtype
from data_prep.formats.fields import shown
from data_prep.inputs.text_blocks import TextPosition, count_lines, read_blocks, split_first_line

MOST_NODES = 3_000_000_000
"""Most nodes: the square of their number must fit 64 bits."""
_NODE_BYTES, _EDGE_BYTES = 16, 24
"""Memory while neighbours are listed: for a node, and at least for one direction of an edge."""
_BEGINNING = re.compile(rb"(?:[#%][^\r\n]*|[ \t]*[\r\n]+)*")
"""Beginnings of comments and empty lines."""
_SEPARATORS = ("\t", ",", ";", " ")
_CURE = "an edge is a line of two node numbers with a tab, comma, semicolon or blank between"


class Edges(NamedTuple):
    """Edges as they were read.

    Attributes:
        sources: int64 `[E]`, 0 or more.
        targets: int64 `[E]`, 0 or more.
    """

    sources: Int64s
    targets: Int64s

    @property
    def nodes(self) -> int:
        """The highest node number + 1; 0 without edges."""
        return int(max(self.sources.max(initial=-1), self.targets.max(initial=-1))) + 1


def read_edges(files: Sequence[Path]) -> Edges:
    """Read edges: on each line two node numbers with a tab, comma, semicolon or blank between them.

    Lines at the beginning of a file may be empty, or comments that begin with `#` or `%`. Files may be compressed with
    gzip, bzip2, xz or zstd.

    Raises:
        DataError: a line is not an edge, there is no edge, or a file cannot be read.
    """
    read = [_read(file) for file in files]
    edges = Edges(*(np.concatenate(parts) for parts in zip(*read, strict=True)))
    if not len(edges.sources):
        raise DataError(f"{', '.join(file.name for file in files)}: no edge; name files with two node numbers a line")
    return edges


def require_memory(edges: Edges, nodes: int, *, directed: bool) -> None:
    """Check that this host has memory for the lists of neighbours of `nodes` nodes.

    Raises:
        CapacityError: it has too little.
    """
    directions = len(edges.sources) * (1 if directed else 2)
    needed, free = _NODE_BYTES * nodes + _EDGE_BYTES * directions, free_bytes()
    if needed > free:
        raise CapacityError(
            f"{nodes} nodes, up to the highest number, and {len(edges.sources)} edges: their lists of neighbours take "
            f"about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; number the nodes without gaps, or use a "
            "host with more memory"
        )


def build_graph(edges: Edges, nodes: int, *, directed: bool) -> tuple[Graph, int]:
    """The neighbours of each node, in ascending order, each once.

    Args:
        edges: the edges; those from a node to itself are left out.
        nodes: number N of nodes, above every node number in `edges`.
        directed: an edge makes its target a neighbour of its source; if false, also its source one of its target.

    Returns:
        The graph, and the number of edges from a node to itself.
    """
    is_loop = edges.sources == edges.targets
    sources, targets = edges.sources[~is_loop], edges.targets[~is_loop]
    keys = sources * nodes + targets
    if not directed:
        keys = np.concatenate((keys, targets * nodes + sources))
    keys.sort()  # `np.unique` hashes integers, which takes 30 times as long
    is_first = np.ones(keys.size, dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    keys = keys[is_first]
    starts = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // nodes, minlength=nodes), out=starts[1:])
    return Graph(starts, (keys % nodes).astype(id_dtype(nodes))), int(is_loop.sum())


def _read(file: Path) -> Edges:
    """The edges of a file."""
    separator, parts = "", [Edges(np.empty(0, np.int64), np.empty(0, np.int64))]
    for block in read_blocks(file, TextPosition()):
        text = block.text
        if not separator:
            text = _BEGINNING.sub(b"", text, count=1)
            separator = _separator(split_first_line(text)[0])
        if not text.strip():
            continue
        try:
            edges = _parse(text, separator)
        except pa.ArrowInvalid as error:
            told = _first_wrong(text, separator, block.end.line)
            raise DataError(f"{file}{told or f': {str(error).partition(chr(10))[0]}; {_CURE}'}") from error
        if any(((numbers < 0) | (numbers >= MOST_NODES)).any() for numbers in edges):
            raise DataError(f"{file}{_first_wrong(text, separator, block.end.line)}")
        parts.append(edges)
    return Edges(*(np.concatenate(numbers) for numbers in zip(*parts, strict=True)))


def _separator(line: bytes) -> str:
    """The separator of a line's numbers; empty for an empty line."""
    text = line.strip()
    return next((one for one in _SEPARATORS if one.encode() in text), "\t") if text else ""


def _parse(text: bytes, separator: str) -> Edges:
    """The edges of whole lines.

    Raises:
        pyarrow.ArrowInvalid: a line is not an edge.
    """
    if b"x" in text or b"X" in text:
        raise pa.ArrowInvalid("pyarrow reads 0x1 as 1")
    names = ["source", "target"]
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        pa_csv.ReadOptions(column_names=names),
        pa_csv.ParseOptions(delimiter=separator),
        pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64()), null_values=[]),
    )
    return Edges(*(table.column(name).to_numpy() for name in names))


def _first_wrong(text: bytes, separator: str, end: int) -> str:
    """Names the first line that is no edge, or whose nodes no graph has; `end` is the last line's number.

    Returns:
        Line, value and cure, to follow the file's name; empty where every line is an edge.
    """
    between = separator.encode()
    number = rb'[%b]*"?(-?[0-9]+)"?[%b]*'.replace(b"%b", b" \t".replace(between, b""))
    edge = re.compile(number + re.escape(between) + number)
    first = end - count_lines(text) + 1
    for at, line in enumerate(text.splitlines(), first):
        if not line:
            continue
        if (found := edge.fullmatch(line)) is None:
            return f":{at}: {shown(line)} is no edge; {_CURE}"
        for node in found.groups():
            digits = node.lstrip(b"-0")
            if len(digits) > len(str(MOST_NODES)) or not 0 <= int(node) < MOST_NODES:
                told = f"has node {shown(node)[1:-1]}; nodes have numbers from 0 to below {MOST_NODES}"
                return f":{at}: {told}: correct the line"
    return ""
