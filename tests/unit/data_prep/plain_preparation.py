"""The preparation of Criteo's rows, one at a time in plain Python; and what tests of the true one share."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import data_prep.inputs.blocks
import data_prep.prepare
import data_prep.ranks.progress
import data_prep.stages.parse
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.id_uses import read_counts, read_train_rows
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary

BACKENDS = [
    "reference",
    pytest.param("native", marks=pytest.mark.skipif(not is_built("click_text"), reason="native code was not built")),
]


def write_text(path: Path, rows: list[str]) -> str:
    path.write_bytes("".join(row + "\n" for row in rows).encode())
    return str(path)


@dataclass
class Naive:
    """The same preparation, one row at a time; `values` are those of each table in the order of their ids."""

    labels: list[int]
    dense: list[list[float]]
    sparse: list[list[int]]
    table_rows: tuple[int, ...]
    train_rows: int
    values: list[list[int]]


def prepare_naively(lines: list[str], min_count: int, test_fraction: float) -> Naive:
    rows = [line.split("\t") for line in lines]
    train_rows = len(rows) - round(len(rows) * test_fraction)
    dense = [[math.log(1 + max(int(field or "0"), 0)) for field in row[1:14]] for row in rows]
    columns = [[int(row[14 + table], 16) if row[14 + table] else None for row in rows] for table in range(26)]
    ids = []
    for column in columns:
        counts = Counter(value for value in column[:train_rows] if value is not None)
        kept = sorted((-count, value) for value, count in counts.items() if count >= min_count)
        ids.append({value: number for number, (_, value) in enumerate(kept, start=1)})
    sparse = [[ids[table].get(columns[table][row], 0) for table in range(26)] for row in range(len(rows))]
    return Naive(
        [int(row[0]) for row in rows],
        dense,
        sparse,
        tuple(len(table) + 1 for table in ids),
        train_rows,
        [list(table) for table in ids],
    )


def read_all(output: Path, manifest: ShardManifest, split: str) -> tuple[list[float], np.ndarray, np.ndarray]:
    with ClickShards(output, manifest, split) as shards:
        every = (0, shards.rows)
        return shards.read_labels(*every).tolist(), shards.read_dense(*every), shards.read_sparse(*every)


def assert_holds(output: Path, manifest: ShardManifest, naive: Naive) -> None:
    assert manifest == load_manifest(output)
    verify_shards(output, manifest, "full")
    assert manifest.table_rows == naive.table_rows
    assert [read_vocabulary(output, manifest, f"C{table}").tolist() for table in range(1, 27)] == naive.values
    for split, rows in (("train", slice(0, naive.train_rows)), ("test", slice(naive.train_rows, None))):
        labels, dense, sparse = read_all(output, manifest, split)
        assert labels == naive.labels[rows]
        assert sparse.tolist() == naive.sparse[rows]
        np.testing.assert_allclose(dense, np.array(naive.dense[rows]).reshape(-1, 13), rtol=1e-6)
        if split == "train":
            assert_counts(output, manifest, sparse)
    assert not (output / "preparation.json").exists()
    assert not (output / "parsed").exists()


def assert_counts(output: Path, manifest: ShardManifest, sparse: np.ndarray) -> None:
    """The counts of ids are those of the training rows; `sparse` holds their ids, of one column a table."""
    assert read_train_rows(output, manifest) == len(sparse)
    for number, table in enumerate(manifest.tables):
        expected = np.bincount(sparse[:, number], minlength=table.rows)
        assert read_counts(output, manifest, table.name).tolist() == expected.tolist()


def silent(_: str) -> None:
    """Progress that nobody reads."""


def small_blocks(monkeypatch: pytest.MonkeyPatch, part_rows: int, range_bytes: int = 1 << 20) -> None:
    """Blocks of a few rows and parts of a few blocks, so that small files have many; a line of progress for each."""
    monkeypatch.setattr(data_prep.prepare, "RANGE_BYTES", range_bytes)
    monkeypatch.setattr(data_prep.ranks.progress, "LINE_EVERY_S", 0.0)
    read = data_prep.inputs.blocks.read_blocks
    monkeypatch.setattr(
        data_prep.inputs.blocks, "read_blocks", lambda source, start, end: read(source, start, end, 2000)
    )
    monkeypatch.setattr(data_prep.stages.parse, "PART_ROWS", part_rows)


class KilledError(Exception):
    """Stands for a kill: nothing in the program catches it."""


def kill_at(word: str, times: int = 1) -> Callable[[str], None]:
    """Progress that kills at the so-many-th line that begins with a word."""
    seen = 0

    def progress(line: str) -> None:
        nonlocal seen
        seen += line.startswith(word)
        if seen == times:
            raise KilledError(line)

    return progress
