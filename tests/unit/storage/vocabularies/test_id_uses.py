"""What is known of ids comes back as it was written; what contradicts the manifest is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.vocabularies.id_uses import (
    read_counts,
    read_last_use,
    read_reborn,
    read_train_rows,
    tables_with_counts,
)
from bagpipe_hpc.storage.vocabularies.vocabulary import (
    TableUse,
    TableVocabulary,
    read_table_vocabulary,
    read_vocabulary,
    write_vocabularies,
)
from bagpipe_hpc.storage.vocabularies.waiting_values import WaitingValues, read_waiting, waiting_info, write_waiting

GROWN = TableUse(np.array([3, 0, 2, 0, 4]), np.array([-1, -1, 7, -1, 9]), np.array([2, 4]))
WAITING = {
    "C1": WaitingValues(np.array([3, 9], np.uint32), np.array([1, 300])),
    "genre": WaitingValues(np.array(["a", "é"], object), np.array([2, 1])),
    "empty": WaitingValues(np.array([], np.int64), np.array([], np.int64)),
}


@pytest.fixture
def manifest(tmp_path: Path) -> ShardManifest:
    """Tables C1, whose vocabulary grew, with a bucket and a free id, C2, and C3, which is hashed."""
    vocabularies = {
        "C1": TableVocabulary(np.array([70, 80], np.uint32), 1, np.array([3])),
        "C2": TableVocabulary(np.array([5], np.int64), 1),
    }
    uses = {"C1": GROWN, "C2": TableUse(np.array([6, 1, 2]), np.array([-1, -1, 8]))}
    info = write_vocabularies(tmp_path, vocabularies, 1, uses.items(), 10)
    tables = (TableInfo("C1", 5), TableInfo("C2", 3), TableInfo("C3", 9))
    return ShardManifest(1, "criteo", 13, tables, (), (), vocabularies=info, hashed_tables=("C3",), grown_from="0" * 64)


def test_what_is_known_of_ids_comes_back(tmp_path: Path, manifest: ShardManifest) -> None:
    vocabulary = read_table_vocabulary(tmp_path, manifest, "C1")
    assert (vocabulary.values.tolist(), vocabulary.ids.tolist(), vocabulary.rows) == ([70, 80], [2, 4], 5)
    assert read_vocabulary(tmp_path, manifest, "C2").tolist() == [5]
    assert read_counts(tmp_path, manifest, "C1").tolist() == [3, 0, 2, 0, 4]
    last_use = read_last_use(tmp_path, manifest, "C1")
    assert last_use is not None
    assert last_use.tolist() == [-1, -1, 7, -1, 9]
    assert read_train_rows(tmp_path, manifest) == 10
    assert [read_reborn(tmp_path, manifest, name).tolist() for name in ("C1", "C2", "C3")] == [[2, 4], [], []]
    assert read_reborn(tmp_path, replace(manifest, grown_from=None), "C1").tolist() == []


@pytest.mark.parametrize(
    ("damage", "read", "problem"),
    [
        (("counts/C1", None), read_counts, "has no counts of ids, as of an older program"),
        (("counts/C1", [1, 2, 3]), read_counts, "counts/C1 has 3 numbers instead of 5 as the manifest says"),
        (("counts/C1", [1, 2, 3, -4, 5]), read_counts, "a count of table C1 is -4"),
        (("counts/C1", [1.0] * 5), read_counts, "counts/C1 is no list of 64-bit integers"),
        (("last_use/C1", [1]), read_last_use, "last_use/C1 has 1 numbers instead of 5"),
        (("reborn/C1", [0, 2]), read_reborn, "reborn/C1 holds no ascending ids from 1 to 4"),
        (("reborn/C1", [2, 5]), read_reborn, "reborn/C1 holds no ascending ids from 1 to 4"),
        (("reborn/C1", [2, 2]), read_reborn, "reborn/C1 holds no ascending ids from 1 to 4"),
        (("free/C1", [1]), read_table_vocabulary, "free/C1 holds no ascending ids from 2 to 4"),
        (("free/C1", [2, 9]), read_table_vocabulary, "free/C1 holds no ascending ids from 2 to 5"),
        (("free/C1", [2, 3]), read_table_vocabulary, "C1 has 2 values instead of 1 as the manifest says"),
    ],
)
def test_what_contradicts_the_manifest_is_refused(
    tmp_path: Path,
    manifest: ShardManifest,
    damage: tuple[str, list[float] | None],
    read: Callable[[Path, ShardManifest, str], object],
    problem: str,
) -> None:
    with h5py.File(tmp_path / "vocabularies.h5", "r+") as file:
        del file[damage[0]]
        if damage[1] is not None:
            file[damage[0]] = damage[1]
    with pytest.raises(DataError, match=problem):
        read(tmp_path, manifest, "C1")


@pytest.mark.parametrize("name", ["format", "unseen_buckets", "train_rows"])
def test_a_damaged_attribute_is_refused(tmp_path: Path, manifest: ShardManifest, name: str) -> None:
    with h5py.File(tmp_path / "vocabularies.h5", "r+") as file:
        file.attrs[name] = -7
    read = read_train_rows if name == "train_rows" else lambda *args: read_table_vocabulary(*args, "C1")
    with pytest.raises(DataError, match="-7"):
        read(tmp_path, manifest)


def test_tables_without_counts_are_named(tmp_path: Path, manifest: ShardManifest) -> None:
    assert tables_with_counts(tmp_path, manifest) == ["C1", "C2"]
    with pytest.raises(DataError, match="has no counts of the ids of table C3: it is hashed to more than 16777216"):
        read_counts(tmp_path, manifest, "C3")
    with pytest.raises(DataError, match="the values of table C3 are hashed; when its ids were used last is not kept"):
        read_last_use(tmp_path, manifest, "C3")
    with pytest.raises(DataError, match="has no table 'C4'; the first is C1"):
        read_counts(tmp_path, manifest, "C4")
    with pytest.raises(DataError, match="has no file of vocabularies"):
        read_counts(tmp_path, replace(manifest, vocabularies=None), "C1")


def test_counts_of_a_hashed_table_come_back(tmp_path: Path, manifest: ShardManifest) -> None:
    uses = [("C3", TableUse(np.arange(9)))]
    manifest = replace(manifest, vocabularies=write_vocabularies(tmp_path, {}, 0, uses, 10))
    assert read_counts(tmp_path, manifest, "C3").tolist() == list(range(9))
    assert read_reborn(tmp_path, manifest, "C3").tolist() == []
    assert tables_with_counts(tmp_path, manifest) == ["C3"]


def test_waiting_values_come_back(tmp_path: Path, manifest: ShardManifest) -> None:
    assert waiting_info(tmp_path) is None
    info = write_waiting(tmp_path, WAITING.items())
    assert write_waiting(tmp_path, WAITING.items()) == info == waiting_info(tmp_path)
    manifest = replace(manifest, waiting=info)
    for name, expected in WAITING.items():
        found = read_waiting(tmp_path, manifest, name)
        assert found.values.dtype == expected.values.dtype
        assert (found.values.tolist(), found.counts.tolist()) == (expected.values.tolist(), expected.counts.tolist())
        assert found.counts.dtype == np.int64
    with h5py.File(tmp_path / "waiting.h5", "r+") as file:
        assert file["counts/genre"].dtype == np.uint8
        del file["counts/C1"]
        file["counts/C1"] = [1]
        del file["values/genre"]
    with pytest.raises(DataError, match="counts/C1 holds no count for each value"):
        read_waiting(tmp_path, manifest, "C1")
    with pytest.raises(DataError, match=r"waiting.h5: holds no values of table genre"):
        read_waiting(tmp_path, manifest, "genre")
    with pytest.raises(DataError, match="does not say which values are too rare for an id"):
        read_waiting(tmp_path, replace(manifest, waiting=None), "C1")
