"""Vocabularies come back as they were saved; damage is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.shards.check import verify_shards
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.vocabularies.id_uses import read_counts
from bagpipe_hpc.storage.vocabularies.vocabulary import (
    TableVocabulary,
    copy_vocabularies,
    load_vocabularies,
    read_vocabulary,
    write_vocabularies,
)

VALUES = {
    "C1": TableVocabulary(np.array([7, 0xFFFFFFFF, 0], dtype=np.uint32)),
    "C2": TableVocabulary(np.array([], dtype=np.uint32)),
}


def saved(directory: Path) -> ShardManifest:
    tables = (TableInfo("C1", 4), TableInfo("C2", 1))
    return ShardManifest(1, "criteo", 13, tables, (), (), vocabularies=write_vocabularies(directory, VALUES))


def test_values_come_back(tmp_path: Path) -> None:
    manifest = saved(tmp_path)
    verify_shards(tmp_path, manifest, "full")
    assert read_vocabulary(tmp_path, manifest, "C1").tolist() == [7, 0xFFFFFFFF, 0]
    assert read_vocabulary(tmp_path, manifest, "C2").tolist() == []
    assert write_vocabularies(tmp_path, VALUES) == manifest.vocabularies


def test_damage_is_named(tmp_path: Path) -> None:
    manifest = saved(tmp_path)
    path = tmp_path / "vocabularies.h5"
    with h5py.File(path, "r+") as file:
        file["values/C1"][0] = 8
    verify_shards(tmp_path, manifest, "quick")
    with pytest.raises(DataError, match=r"vocabularies.h5: its SHA-256 is not the manifest's"):
        verify_shards(tmp_path, manifest, "full")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"vocabularies.h5: it has \d+ bytes instead of"):
        verify_shards(tmp_path, manifest, "quick")
    path.unlink()
    for read in (lambda: verify_shards(tmp_path, manifest, "quick"), lambda: read_vocabulary(tmp_path, manifest, "C1")):
        with pytest.raises(DataError, match=r"vocabularies.h5: the .* is missing"):
            read()


def test_another_file_is_refused(tmp_path: Path) -> None:
    manifest = saved(tmp_path)
    other = replace(manifest, tables=(TableInfo("C1", 5), TableInfo("C2", 1)))
    with pytest.raises(DataError, match="C1 has 3 values instead of 4 as the manifest says"):
        read_vocabulary(tmp_path, other, "C1")
    with pytest.raises(DataError, match="has no table 'C3'"):
        read_vocabulary(tmp_path, manifest, "C3")
    with pytest.raises(DataError, match="values of table C1 were hashed"):
        read_vocabulary(tmp_path, replace(manifest, vocabularies=None), "C1")


def test_values_of_every_kind_come_back(tmp_path: Path) -> None:
    integers, texts = np.array([-(1 << 63), 7]), np.array(["é", "", "a b"], dtype=object)
    values = {"C1": TableVocabulary(integers), "C2": TableVocabulary(texts)}
    tables = (TableInfo("C1", 3), TableInfo("C2", 4))
    files = [write_vocabularies(tmp_path, values) for _ in range(2)]
    assert files[0] == files[1]
    manifest = ShardManifest(1, "shop", 2, tables, (), (), vocabularies=files[0])
    assert read_vocabulary(tmp_path, manifest, "C1").dtype == np.int64
    assert read_vocabulary(tmp_path, manifest, "C1").tolist() == integers.tolist()
    assert read_vocabulary(tmp_path, manifest, "C2").tolist() == texts.tolist()


@pytest.mark.parametrize("values", [np.array([1.5]), np.array([[1]]), np.array([b"\xff"], dtype=object)])
def test_values_of_no_kind_are_refused(tmp_path: Path, values: np.ndarray) -> None:
    kind = h5py.string_dtype() if values.dtype == object else None
    with h5py.File(tmp_path / "vocabularies.h5", "w") as file:
        file.create_dataset("C1", data=values, dtype=kind)
    with pytest.raises(DataError, match=r"vocabularies.h5: holds no values of table C1; run bagpipe prepare again"):
        load_vocabularies(tmp_path / "vocabularies.h5", ["C1"])


def never_written(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (1 << 40,), np.int64, chunks=(1 << 10,))


def contiguous(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (1 << 40,), np.int64)


def elsewhere(file: h5py.File, name: str) -> None:
    with h5py.File(f"{file.filename}-other", "w") as other:
        other["x"] = np.arange(3)
    file[name] = h5py.ExternalLink(f"{file.filename}-other", "x")


def nested(file: h5py.File, name: str) -> None:
    file.create_group(name)


@pytest.mark.parametrize("spoil", [never_written, contiguous, elsewhere, nested])
@pytest.mark.parametrize("name", ["values/C1", "free/C1", "counts/C1"])
def test_lists_that_the_file_does_not_hold_are_refused(
    name: str, spoil: Callable[[h5py.File, str], None], tmp_path: Path
) -> None:
    """A list may promise terabytes, or lie in another file."""
    manifest = saved(tmp_path)
    with h5py.File(tmp_path / "vocabularies.h5", "r+") as file:
        file.pop(name, None)
        spoil(file, name)
    read = read_counts if name.startswith("counts") else read_vocabulary
    with pytest.raises(DataError, match=r"vocabularies\.h5: (holds no values of table C1|.*/C1 is no list of 64-bit)"):
        read(tmp_path, manifest, "C1")


def test_a_copy_says_which_of_the_two_files_is_at_fault(tmp_path: Path) -> None:
    info = write_vocabularies(tmp_path, {"C1": TableVocabulary(np.array([3, 1], np.uint32))})
    (tmp_path / "later").mkdir()
    assert copy_vocabularies(tmp_path, tmp_path / "later", info) == info
    assert file_sha256(tmp_path / "later" / info.file) == info.sha256
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "gone" / info.file)):
        copy_vocabularies(tmp_path, tmp_path / "gone", info)
    with pytest.raises(DataError, match=f"{tmp_path / 'gone' / info.file}: cannot be read"):
        copy_vocabularies(tmp_path / "gone", tmp_path / "later", info)
    (tmp_path / info.file).write_bytes(b"other")
    with pytest.raises(DataError, match="its SHA-256 is not the manifest's"):
        copy_vocabularies(tmp_path, tmp_path / "later", info)
    assert file_sha256(tmp_path / "later" / info.file) == info.sha256
