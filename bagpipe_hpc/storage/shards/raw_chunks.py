"""Reads the chunks of a shard's datasets as they lie in the file, without HDF5: threads read and decode side by side.

HDF5 runs its filters under one lock, so that it decodes on a single core. Here it only says, once a shard, where the
chunks lie.
"""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.shards.shard_file import NamedShard, OpenShard, errors_name

_SHUFFLE, _GZIP, _LZF = h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF
Bytes = NDArray[np.uint8]


class ChunkDecoder(Protocol):
    """Undoes the filters of chunks, without the GIL; `kernels.lzf` has these functions."""

    def decompress(self, packed: Bytes, size: int) -> Bytes | None:
        """The bytes that LZF data stand for, uint8 `[size]`; None where they do not stand for that many."""

    def unshuffle(self, shuffled: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Undo HDF5's shuffle filter: the elements, of type `dtype`, `[bytes / bytes of an element]`."""


class KeptChunks:
    """The chunks that were used last, among those that are read in several parts."""

    MOST = 8
    """Number of chunks that are kept; each has up to a megabyte in shards that a preparation writes."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[Path, str, int], NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[Path, str, int]) -> NDArray[Any] | None:
        """The chunk of a file and dataset with this number, if it is kept."""
        with self._lock:
            if (chunk := self._chunks.get(key)) is not None:
                self._chunks.move_to_end(key)
            return chunk

    def put(self, key: tuple[Path, str, int], chunk: NDArray[Any]) -> None:
        """Keep a chunk, if need be in place of the one that was used least recently."""
        with self._lock:
            self._chunks[key] = chunk
            while len(self._chunks) > self.MOST:
                self._chunks.popitem(last=False)


@dataclass(frozen=True)
class RawDataset:
    """Where the chunks of a dataset lie, each of whole rows; several threads may read it.

    Attributes:
        path: of the file.
        name: of the dataset.
        shape: of the dataset.
        dtype: of the dataset.
        chunk_rows: rows of a chunk.
        filters: HDF5's numbers of the filters that were applied to each chunk, in this order.
        offsets: first byte of each chunk in the file, int64 `[chunks]`.
        sizes: bytes of each there, int64 `[chunks]`.
        masks: of each, a bit for each filter that was left out, int64 `[chunks]`.
        decoder: undoes what filters did.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    filters: tuple[int, ...]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    masks: NDArray[np.int64]
    decoder: ChunkDecoder

    @classmethod
    def find(cls, shard: OpenShard, name: str, decoder: ChunkDecoder) -> "RawDataset | None":
        """Look up where the chunks of a dataset lie; None where only HDF5 can read it.

        Raises:
            DataError: HDF5 cannot say where, or says what cannot be.
        """
        dataset = shard.file[name]
        if dataset.chunks is None or dataset.chunks[1:] != dataset.shape[1:] or shard.file.userblock_size:
            return None
        with errors_name(shard.path):
            creation = dataset.id.get_create_plist()
            filters = tuple(creation.get_filter(number)[0] for number in range(creation.get_nfilters()))
            if not _is_readable(filters):
                return None
            chunks: list[Any] = []
            dataset.id.chunk_iter(chunks.append)
            file_bytes = shard.file.id.get_filesize()
        chunk_rows = int(dataset.chunks[0])
        chunks.sort(key=lambda chunk: chunk.chunk_offset)  # they come in any order
        each_once = [chunk.chunk_offset[0] for chunk in chunks] == list(range(0, dataset.shape[0], chunk_rows))
        if not each_once or any(chunk.byte_offset + chunk.size > file_bytes for chunk in chunks):
            raise shard.unfit(f"HDF5's list of the chunks of {name} does not have each of them once, inside the file")
        places = [(chunk.byte_offset, chunk.size, chunk.filter_mask) for chunk in chunks]
        offsets, sizes, masks = np.array(places, dtype=np.int64).reshape(-1, 3).T
        return cls(shard.path, name, dataset.shape, dataset.dtype, chunk_rows, filters, offsets, sizes, masks, decoder)

    def read(self, first: int, last: int, kept: KeptChunks) -> NDArray[Any]:
        """Rows `first` up to `last`, `[last - first, ...]` of the dataset's type.

        Args:
            first: first row.
            last: one more than the last row.
            kept: takes the chunks of which only a part is read.

        Raises:
            DataError: the file cannot be read, or a chunk is not what its filters leave.
        """
        pieces = []
        for number in range(first // self.chunk_rows, -(-last // self.chunk_rows)):
            begin = number * self.chunk_rows
            is_whole = first <= begin and min(begin + self.chunk_rows, self.shape[0]) <= last
            key = self.path, self.name, number
            if (chunk := kept.get(key)) is None:
                chunk = self._chunk(number)
                if not is_whole:
                    kept.put(key, chunk)
            pieces.append(chunk[max(0, first - begin) : last - begin])
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty((0, *self.shape[1:]), dtype=self.dtype)

    def _chunk(self, number: int) -> NDArray[Any]:
        """The rows of a chunk, `[chunk_rows, ...]`."""
        with errors_name(self.path):
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                stored = os.pread(handle, int(self.sizes[number]), int(self.offsets[number]))
            finally:
                os.close(handle)
            return self._decoded(number, stored)

    def _decoded(self, number: int, stored: bytes) -> NDArray[Any]:
        """The rows of a chunk from its stored bytes, `[chunk_rows, ...]`; raises `OSError` where they do not fit."""
        shape = (self.chunk_rows, *self.shape[1:])
        size = int(np.prod(shape)) * self.dtype.itemsize
        chunk: Bytes | None = np.frombuffer(stored, dtype=np.uint8)
        values = None
        for place in reversed(range(len(self.filters))):
            if self.masks[number] >> place & 1 or chunk is None:
                continue
            if self.filters[place] == _LZF:
                chunk = self.decoder.decompress(chunk, size)
            elif self.filters[place] == _GZIP:
                chunk = _inflate(stored, size)
            elif chunk.size == size:
                values = self.decoder.unshuffle(chunk, self.dtype)
        if chunk is None or chunk.size != size:
            raise OSError(f"chunk {number} of {self.name} is not what it should be")
        return (chunk.view(self.dtype) if values is None else values).reshape(shape)


def _is_readable(filters: tuple[int, ...]) -> bool:
    """Whether these are the filters of a preparation: bytes shuffled or not, then compressed or not."""
    return filters in {(), (_LZF,), (_GZIP,), (_SHUFFLE, _LZF), (_SHUFFLE, _GZIP)}


def _inflate(stored: bytes, size: int) -> Bytes | None:
    """Undo zlib's compression, in memory for `size + 1` bytes at most; None where the data are damaged."""
    inflator = zlib.decompressobj()
    try:
        return np.frombuffer(inflator.decompress(stored, size + 1), dtype=np.uint8)
    except zlib.error:
        return None


@dataclass(frozen=True)
class ReadShard(NamedShard):
    """A shard whose datasets are read raw where possible, otherwise through HDF5. Several threads may read it.

    Attributes:
        open: opens the file, or finds it open; called with `lock` held, which is held as long as the file is in use.
        lock: for HDF5 and the files that are open.
        kept: chunks of all shards that are read in several parts.
        decoder: undoes the filters of chunks; None to read all through HDF5.
    """

    open: Callable[[], OpenShard]
    lock: threading.RLock
    kept: KeptChunks
    decoder: ChunkDecoder | None = None
    _raw: dict[str, RawDataset | None] = field(default_factory=dict)

    def read(self, dataset: str, first: int, last: int) -> NDArray[Any]:
        """Values `first` up to `last` of a dataset, `[last - first, ...]` of its type; they may be read-only.

        Raises:
            DataError: they cannot be read.
        """
        with self.lock:
            if self.decoder is not None and dataset not in self._raw:
                self._raw[dataset] = RawDataset.find(self.open(), dataset, self.decoder)
            raw = self._raw.get(dataset)
            if raw is None:
                return self.open().read(dataset, first, last)
        return raw.read(first, last, self.kept)
