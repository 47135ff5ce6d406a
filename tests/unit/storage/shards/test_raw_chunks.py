"""Chunks that are read without HDF5 are what HDF5 reads; what is damaged is named, what it must read is left to it."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.kernels import lzf
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.raw_chunks import KeptChunks, RawDataset, ReadShard
from bagpipe_hpc.storage.shards.shard_file import OpenShard

pytestmark = pytest.mark.skipif(not is_built("lzf"), reason="native code was not built")

ROWS, CHUNK = 50, 8
VALUES = np.random.default_rng(1).zipf(1.3, (ROWS, 3)).astype(np.int32)


def write(path: Path, **options: Any) -> OpenShard:
    with h5py.File(path, "w") as file:
        file.create_dataset("sparse", data=VALUES, **options)
    return OpenShard(path, ShardInfo(path.name, ROWS, 0, 1, "0" * 64), h5py.File(path, "r"))


def find(shard: OpenShard) -> RawDataset:
    raw = RawDataset.find(shard, "sparse", lzf)
    assert raw is not None
    return raw


READABLE = {
    "plain": {},
    "lzf": {"compression": "lzf"},
    "shuffled lzf": {"compression": "lzf", "shuffle": True},
    "gzip": {"compression": "gzip"},
    "shuffled gzip": {"compression": "gzip", "shuffle": True},
}


@pytest.mark.parametrize("options", READABLE.values(), ids=READABLE)
def test_any_range_is_what_hdf5_reads(tmp_path: Path, options: dict[str, Any]) -> None:
    shard = write(tmp_path / "a.h5", chunks=(CHUNK, 3), **options)
    raw, kept = find(shard), KeptChunks()
    for first in range(ROWS + 1):
        for last in range(first, ROWS + 1):
            read = raw.read(first, last, kept)
            assert read.dtype == np.int32
            np.testing.assert_array_equal(read, VALUES[first:last])


def test_a_chunk_whose_filters_were_left_out_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, chunks=(CHUNK, 3), compression="lzf", shuffle=True).file.close()
    other = np.arange(CHUNK * 3, dtype=np.int32).reshape(CHUNK, 3)
    with h5py.File(path, "r+") as file:
        file["sparse"].id.write_direct_chunk((0, 0), lzf.shuffle(other).tobytes(), filter_mask=0b10)
        file["sparse"].id.write_direct_chunk((CHUNK, 0), other.tobytes(), filter_mask=0b11)
    shard = OpenShard(path, ShardInfo("a.h5", ROWS, 0, 1, "0" * 64), h5py.File(path, "r"))
    read = find(shard).read(0, ROWS, KeptChunks())
    np.testing.assert_array_equal(read, np.concatenate([other, other, VALUES[2 * CHUNK :]]))
    np.testing.assert_array_equal(read, shard.read("sparse", 0, ROWS))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (CHUNK, 1)},
        {"chunks": (CHUNK, 3), "fletcher32": True},
        {"chunks": (CHUNK, 3), "scaleoffset": 0},
    ],
    ids=["in one piece", "columns apart", "checksums", "another filter"],
)
def test_what_only_hdf5_can_read_is_left_to_it(tmp_path: Path, options: dict[str, Any]) -> None:
    shard = write(tmp_path / "a.h5", **options)
    assert RawDataset.find(shard, "sparse", lzf) is None
    reader = ReadShard(shard.path, shard.info, lambda: shard, threading.RLock(), KeptChunks(), lzf)
    np.testing.assert_array_equal(reader.read("sparse", 3, 40), VALUES[3:40])


def cut_off(path: Path, raw: RawDataset) -> None:
    path.write_bytes(path.read_bytes()[: int(raw.offsets.max())])


def fill_a_chunk(path: Path, raw: RawDataset) -> None:
    content = bytearray(path.read_bytes())
    begin, size = int(raw.offsets[2]), int(raw.sizes[2])
    content[begin : begin + size] = b"\xff" * size
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut_off, fill_a_chunk, lambda path, _: path.unlink()])
@pytest.mark.parametrize("compression", ["lzf", "gzip"])
def test_a_damaged_chunk_names_its_file(
    tmp_path: Path, damage: Callable[[Path, RawDataset], object], compression: str
) -> None:
    shard = write(tmp_path / "a.h5", chunks=(CHUNK, 3), compression=compression, shuffle=True)
    raw = find(shard)
    shard.file.close()
    damage(shard.path, raw)
    with pytest.raises(DataError, match=r"a\.h5: cannot be read"):
        raw.read(0, ROWS, KeptChunks())


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_damaged_list_of_chunks_names_its_file(tmp_path: Path, change: int) -> None:
    """HDF5 itself checks little of it: not that chunks lie in the dataset, in the file, or that each is there once."""
    path = tmp_path / "a.h5"
    shard = write(path, chunks=(CHUNK, 3), compression="lzf", shuffle=True)
    shard.file.close()
    content = path.read_bytes()
    first = content.index(b"TREE", content.index(b"TREE") + 4)  # the second such node lists the chunks
    refused: list[str] = []
    for place in range(first + 24, first + 24 + 40 * (ROWS // CHUNK)):
        path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
        with contextlib.closing(h5py.File(path, "r")) as file:
            try:
                find(OpenShard(path, shard.info, file)).read(0, ROWS, KeptChunks())
            except DataError as error:
                refused.append(str(error))
    assert all(message.startswith(f"{path}: ") for message in refused)
    assert sum("does not have each of them once" in message for message in refused) > 30


def test_a_chunk_that_inflates_to_more_than_it_should_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, chunks=(CHUNK, 3), compression="gzip").file.close()
    with h5py.File(path, "r+") as file:
        import zlib

        file["sparse"].id.write_direct_chunk((0, 0), zlib.compress(bytes(10_000_000)))
    raw = find(OpenShard(path, ShardInfo("a.h5", ROWS, 0, 1, "0" * 64), h5py.File(path, "r")))
    with pytest.raises(DataError, match="chunk 0 of sparse is not what it should be"):
        raw.read(0, CHUNK, KeptChunks())


def test_a_chunk_that_is_read_in_parts_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, kept = find(write(tmp_path / "a.h5", chunks=(CHUNK, 3), compression="lzf")), KeptChunks()
    decoded: list[int] = []
    chunk = RawDataset._chunk
    monkeypatch.setattr(RawDataset, "_chunk", lambda self, number: decoded.append(number) or chunk(self, number))
    for first in range(ROWS):
        np.testing.assert_array_equal(raw.read(first, first + 1, kept), VALUES[first : first + 1])
    assert decoded == list(range(-(-ROWS // CHUNK)))
    raw.read(CHUNK, 2 * CHUNK, kept)
    raw.read(0, ROWS, KeptChunks())
    assert len(kept._chunks) <= KeptChunks.MOST


def test_the_least_recently_used_chunk_is_dropped() -> None:
    kept = KeptChunks()
    for number in range(KeptChunks.MOST):
        kept.put((Path("a"), "sparse", number), VALUES)
    assert kept.get((Path("a"), "sparse", 0)) is VALUES
    kept.put((Path("b"), "sparse", 0), VALUES)
    assert kept.get((Path("a"), "sparse", 1)) is None
    assert kept.get((Path("a"), "sparse", 0)) is VALUES
