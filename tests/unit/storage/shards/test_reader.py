"""Samples come back as they were written, for any range; damage of any kind is named."""

import errno
import gc
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.kernels import lzf
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.shards.check import LEVELS, verify_shards
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.raw_chunks import ChunkDecoder
from bagpipe_hpc.storage.shards.reader import OPEN_SHARDS, ClickShards
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.storage.shards.writer import write_shard

DECODERS = (None, lzf) if is_built("lzf") else (None,)
TABLES = (TableInfo("C1", 3), TableInfo("C2", 1000))
SHARD_ROWS = (5, 1, 7, 4, 6, 3, 2)
ROWS = sum(SHARD_ROWS)


def samples(rows: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, table.rows, rows) for table in TABLES], axis=1).astype(np.int32)
    return Samples(rng.random((rows, 4), dtype=np.float32), ids, rng.integers(0, 2, rows, dtype=np.uint8))


def in_pieces(whole: Samples, at: int) -> list[Samples]:
    return [
        Samples(whole.dense[part], whole.sparse[part], whole.label[part]) for part in (slice(0, at), slice(at, None))
    ]


def write_directory(directory: Path) -> tuple[ShardManifest, Samples]:
    """Seven small train shards and no test shard."""
    written = [samples(rows, seed) for seed, rows in enumerate(SHARD_ROWS)]
    shards = tuple(
        write_shard(directory / f"train-{number:05d}.h5", rows, in_pieces(written[number], rows // 2), compression)
        for number, (rows, compression) in enumerate(zip(SHARD_ROWS, ["lzf", "gzip", "none"] * 3, strict=False))
    )
    manifest = ShardManifest(1, "criteo", 4, TABLES, shards, ())
    whole = (np.concatenate([getattr(part, name) for part in written]) for name in ("dense", "sparse", "label"))
    return manifest, Samples(*whole)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ShardManifest, Samples]:
    folder = tmp_path_factory.mktemp("shards")
    return folder, *write_directory(folder)


@given(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted), st.sampled_from(DECODERS))
def test_any_range_is_what_was_written(
    directory: tuple[Path, ShardManifest, Samples], bounds: list[int], decoder: ChunkDecoder | None
) -> None:
    folder, manifest, written = directory
    first, last = bounds
    with ClickShards(folder, manifest, "train", decoder=decoder) as shards:
        assert shards.rows == ROWS
        for got, expected, dtype in (
            (shards.read_dense(first, last), written.dense, np.float32),
            (shards.read_sparse(first, last), written.sparse, np.int64),
            (shards.read_stored_ids(first, last), written.sparse, np.int32),
            (shards.read_labels(first, last), written.label, np.float32),
            (shards.read_look_ups(first, last).grid, written.sparse, np.int64),
            (shards.read_id_weights(first, last).grid, np.ones((ROWS, 2)), np.float32),
            (shards.read_lengths(first, last), np.ones((ROWS, 2)), np.int64),
            (shards.read_sample_weights(first, last), np.ones(ROWS), np.float32),
        ):
            assert got is not None
            assert got.dtype == dtype
            assert np.array_equal(got, expected[first:last])


def test_few_files_stay_open_and_none_after_closing(directory: tuple[Path, ShardManifest, Samples]) -> None:
    folder, manifest, written = directory
    with ClickShards(folder, manifest, "train") as shards:
        for first in [*range(ROWS), 0, ROWS - 1, 0]:
            assert shards.read_labels(first, first + 1)[0] == written.label[first]
            assert len(shards._open) <= OPEN_SHARDS
    assert not shards._open


def test_a_reader_of_many_tables_looks_their_rows_up_once(
    directory: tuple[Path, ShardManifest, Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest makes a list of all tables each time: of 10,000 that took seconds, for every segment of a run."""
    path, manifest, _ = directory
    asked: list[ShardManifest] = []

    def table_rows(own: ShardManifest) -> tuple[int, ...]:
        asked.append(own)
        return tuple(table.rows for table in own.tables)

    monkeypatch.setattr(ShardManifest, "table_rows", property(table_rows))
    ClickShards(path, manifest, "train").close()
    assert len(asked) == 1 < len(manifest.features)


@pytest.mark.parametrize("decoder", DECODERS)
def test_nothing_stays_of_a_reader_that_is_let_go(
    directory: tuple[Path, ShardManifest, Samples], decoder: ChunkDecoder | None
) -> None:
    """A run has one for each segment. Chunks that it keeps must not wait until Python looks for cycles."""
    folder, manifest, _ = directory
    gc.disable()
    try:
        with ClickShards(folder, manifest, "train", decoder=decoder) as shards:
            for first in range(0, ROWS - 1, 2):
                shards.read_dense(first, first + 1)
        left = [weakref.ref(part) for part in (shards, shards._readers[0].kept)]
        del shards
        assert [part() for part in left] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 2), (0, ROWS + 1)])
def test_a_range_outside_the_split_is_a_defect(
    directory: tuple[Path, ShardManifest, Samples], first: int, last: int
) -> None:
    folder, manifest, _ = directory
    with (
        ClickShards(folder, manifest, "train") as shards,
        pytest.raises(IndexError, match=f"not within the {ROWS} rows"),
    ):
        shards.read_labels(first, last)


def test_an_empty_split(directory: tuple[Path, ShardManifest, Samples]) -> None:
    folder, manifest, _ = directory
    with ClickShards(folder, manifest, "test") as shards:
        assert shards.rows == 0
        assert shards.read_sparse(0, 0).shape == (0, 2)


@pytest.mark.parametrize("wrong", [-1, 3, 1 << 30])
def test_an_id_outside_its_table_names_file_table_and_value(tmp_path: Path, wrong: int) -> None:
    manifest, _ = write_directory(tmp_path)
    with h5py.File(tmp_path / "train-00002.h5", "r+") as file:
        file["sparse"][4, 0] = wrong
    with ClickShards(tmp_path, manifest, "train") as shards:
        shards.read_sparse(0, 6)
        with pytest.raises(DataError, match=rf"train-00002\.h5: an id of table C1 is {wrong}, outside 0 \.\. 2"):
            shards.read_sparse(0, ROWS)


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_the_same_blocks_are_the_same_bytes(tmp_path: Path, compression: str) -> None:
    first = write_shard(tmp_path / "a.h5", 5, in_pieces(samples(5, 1), 3), compression)
    second = write_shard(tmp_path / "b.h5", 5, in_pieces(samples(5, 1), 3), compression)
    assert replace(second, file="a.h5") == first


def test_a_wrong_number_of_samples_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 5 rows instead of 6"):
        write_shard(tmp_path / "a.h5", 6, [samples(5, 1)])
    assert not list(tmp_path.iterdir())


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change_shape(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        wider = np.zeros((len(file["label"]), 3), dtype=np.int32)
        del file["sparse"]
        file["sparse"] = wider


def change_type(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        dense = file["dense"][:].astype(np.float64)
        del file["dense"]
        file["dense"] = dense


def remove_dataset(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["label"]


def become_text(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


DAMAGE: dict[Callable[[Path], object], str] = {
    Path.unlink: "the shard is missing",
    cut_off: r"it has \d+ bytes instead of \d+",
    change_shape: r"sparse is int32 \[7, 3\] instead of int32 \[7, 2\]",
    change_type: r"dense is float64 \[7, 4\] instead of float32 \[7, 4\]",
    remove_dataset: "it has no dataset label",
    become_text: "cannot be read",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_quickly(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    manifest, _ = write_directory(tmp_path)
    for level in LEVELS:
        verify_shards(tmp_path, manifest, level)
    path = tmp_path / "train-00002.h5"
    damage(path)
    if path.exists() and damage is not cut_off:  # Otherwise the size alone would tell.
        resized = replace(manifest.train[2], bytes=path.stat().st_size)
        manifest = replace(manifest, train=(*manifest.train[:2], resized, *manifest.train[3:]))
    with pytest.raises(DataError, match=rf"train-00002\.h5: {DAMAGE[damage]}.*(copy it here again|prepare again)"):
        verify_shards(tmp_path, manifest, "quick")


def test_a_flipped_bit_is_found_by_the_full_check(tmp_path: Path) -> None:
    manifest, _ = write_directory(tmp_path)
    flip_a_byte(tmp_path / "train-00001.h5")
    with pytest.raises(DataError, match=r"train-00001\.h5: its SHA-256 is not the manifest's"):
        verify_shards(tmp_path, manifest, "full")


def test_a_chunk_checksum_finds_a_flipped_bit_on_reading(tmp_path: Path) -> None:
    whole = samples(50, 3)
    shard = write_shard(tmp_path / "a.h5", 50, [whole], "none", chunk_checksums=True)
    content = (tmp_path / "a.h5").read_bytes()
    at = content.index(whole.dense.tobytes())
    (tmp_path / "a.h5").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    manifest = ShardManifest(1, "criteo", 4, TABLES, (shard,), ())
    with ClickShards(tmp_path, manifest, "train") as shards:
        assert shards.read_sparse(0, 50).shape == (50, 2)
        with pytest.raises(DataError, match=r"a\.h5: cannot be read"):
            shards.read_dense(0, 50)


HOSTILE: dict[str, Callable[[h5py.File, h5py.Dataset, Path], object]] = {
    "external link": lambda file, _, other: file.__setitem__("label", h5py.ExternalLink(other, "label")),
    "soft link": lambda file, _, __: file.__setitem__("label", h5py.SoftLink("/copy")),
    "external storage": lambda file, label, other: file.create_dataset(
        "label", label.shape, label.dtype, external=[(other, 0, label.size)]
    ),
    "virtual": lambda file, label, other: file.create_virtual_dataset("label", virtual(label, other)),
    "never written": lambda file, label, _: file.create_dataset("label", label.shape, label.dtype),
    "chunks never written": lambda file, label, _: file.create_dataset("label", label.shape, label.dtype, chunks=(3,)),
    "group": lambda file, _, __: file.create_group("label"),
    "no data at all": lambda file, _, __: file.create_dataset("label", data=h5py.Empty("u1")),
    "another shape": lambda file, label, _: file.create_dataset("label", data=label[:][:, None]),
    "dangling link": lambda file, _, __: file.__setitem__("label", h5py.SoftLink("/nowhere")),
}


def type_of_nobody(file: h5py.File, label: h5py.Dataset, _: Path) -> None:
    """A float that NumPy has no type for, as a flipped bit makes one."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(1 << 30)
    h5py.h5d.create(file.id, b"label", kind, h5py.h5s.create_simple(label.shape))


HOSTILE["type of nobody"] = type_of_nobody


def virtual(label: h5py.Dataset, other: Path) -> h5py.VirtualLayout:
    layout = h5py.VirtualLayout(label.shape, label.dtype)
    layout[:] = h5py.VirtualSource(other, "label", label.shape)
    return layout


@pytest.mark.parametrize("kind", HOSTILE)
def test_datasets_that_the_shard_does_not_hold_are_refused(tmp_path: Path, kind: str) -> None:
    """Though what the name leads to has the right shape and type."""
    manifest, _ = write_directory(tmp_path)
    path = tmp_path / "train-00002.h5"
    other = tmp_path / "other.h5"
    other.write_bytes(path.read_bytes())
    with h5py.File(path, "r+") as file:
        file.move("label", "copy")
        HOSTILE[kind](file, file["copy"], other)
    said = r"train-00002\.h5: (it has no dataset label|label is |cannot be read)"
    with ClickShards(tmp_path, manifest, "train") as shards, pytest.raises(DataError, match=said):
        shards.read_labels(0, ROWS)


@pytest.mark.parametrize(("dataset", "value"), [("dense", np.nan), ("dense", -np.inf), ("label", 2), ("label", 255)])
def test_values_that_nothing_can_be_trained_on_are_named(tmp_path: Path, dataset: str, value: float) -> None:
    manifest, _ = write_directory(tmp_path)
    with h5py.File(tmp_path / "train-00002.h5", "r+") as file:
        file[dataset][-1] = value
    with ClickShards(tmp_path, manifest, "train") as shards:
        read = shards.read_dense if dataset == "dense" else shards.read_labels
        rows = sum(shard.rows for shard in manifest.train[:3])
        assert len(read(0, rows - 1)) == rows - 1
        with pytest.raises(DataError, match=rf"train-00002\.h5: a (dense feature|label) is {value}[ ,]"):
            read(0, ROWS)


@pytest.mark.parametrize("level", LEVELS)
def test_a_shard_that_the_system_does_not_give_is_named(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing permissions, or a disk with errors."""
    manifest, _ = write_directory(tmp_path)

    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("bagpipe_hpc.storage.shards.check.file_sha256", fail)
    monkeypatch.setattr(h5py, "File", fail)
    with pytest.raises(DataError, match=r"train-00000\.h5: cannot be read .*Input/output error.*copy it here again"):
        verify_shards(tmp_path, manifest, level)


def test_an_unknown_level_is_a_defect(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="thorough"):
        verify_shards(tmp_path, ShardManifest(1, "criteo", 4, TABLES, (), ()), "thorough")
