"""Which implementation prepares: native code where it was built, or Python on pyarrow and numpy, the definition.

Both give the same shards, sample for sample.
"""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import lzf, shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.storage.shards.encoded import Encoder
from bagpipe_hpc.storage.shards.reader import GZIP_LEVEL
from data_prep import criteo, native_criteo, native_ids, vocabulary
from data_prep.parsed_rows import ParsedRows
from data_prep.vocabulary import Ids

BACKENDS = ("auto", "native", "reference")
Vocabularies = list[NDArray[np.uint32] | None]
"""The values of each table in the order of their ids; None where they are hashed."""
_LIBRARIES = ("click_text", "value_ids", "lzf")


class IdMaps(Protocol):
    """Gives the categorical values of rows their ids."""

    def write_ids(self, columns: Sequence[pa.UInt32Array], ids: Ids) -> None:
        """Write the ids of `n` rows of `F` tables to `ids [n, F]`, contiguous."""


@dataclass(frozen=True)
class Backend:
    """The steps that have two implementations.

    Attributes:
        parse_block: as `criteo.parse_block`.
        build_vocabularies: as `vocabulary.build_vocabularies`.
        id_maps: as `vocabulary.IdMaps`.
        encoders: how threads compress the chunks of a shard, for each compression; None where HDF5 is to do it.
    """

    parse_block: Callable[[bytes], tuple[pa.RecordBatch, list[criteo.BadLine]]]
    build_vocabularies: Callable[[ThreadPoolExecutor, ParsedRows, int, int, int | None], Vocabularies]
    id_maps: Callable[[Sequence[NDArray[np.uint32] | None], int], IdMaps]
    encoders: dict[str, Encoder | None] | None


def choose_backend(name: str) -> Backend:
    """The backend `auto`, `native` or `reference`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if name == "native" and not all(map(shared_library.is_built, _LIBRARIES)):
        raise ConfigError(
            "prepare: backend = 'native': the native code was not built; run `make setup` where g++ is on PATH, or use "
            "--backend reference"
        )
    chosen = [use_native(name, library) for library in _LIBRARIES]
    return _NATIVE if all(chosen) else _REFERENCE


def _encode_lzf(chunk: NDArray[Any], shuffle: bool) -> NDArray[np.uint8] | None:
    return lzf.compress(lzf.shuffle(chunk) if shuffle else chunk)


def _encode_gzip(chunk: NDArray[Any], shuffle: bool) -> bytes:
    return zlib.compress((lzf.shuffle(chunk) if shuffle else chunk).data, GZIP_LEVEL)


_REFERENCE = Backend(
    criteo.parse_block,
    vocabulary.build_vocabularies,
    vocabulary.IdMaps,
    None,
)
_NATIVE = Backend(
    native_criteo.parse_block,
    native_ids.build_vocabularies,
    native_ids.IdMaps,
    {"lzf": _encode_lzf, "gzip": _encode_gzip, "none": None},
)
