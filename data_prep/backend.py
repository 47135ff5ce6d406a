"""Which implementation prepares: native code where it was built, or Python with pyarrow and numpy, the definition.

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
from bagpipe_hpc.storage.shards.writer import GZIP_LEVEL
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from data_prep.formats.layout import IdRule, Table
from data_prep.formats.source_format import SourceFormat
from data_prep.parsed_rows import ParsedRows
from data_prep.vocabularies import native_ids, vocabulary
from data_prep.vocabularies.vocabulary import Ids
from data_prep.vocabularies.wide_values import CountedValues

BACKENDS = ("auto", "native", "reference")
_LIBRARIES = ("value_ids", "wide_ids", "lzf")


class IdMaps(Protocol):
    """Gives categorical values their ids."""

    def write_ids(self, columns: Sequence[pa.Array], tables: Sequence[int], ids: Ids) -> None:
        """Write the ids of `n` rows of `F` columns to `ids [n, F]`, which is contiguous.

        Args:
            columns: values of each column.
            tables: number of the table of each column.
            ids: int32 or int64, changed.
        """


@dataclass(frozen=True)
class Backend:
    """One implementation of the steps that have two.

    Attributes:
        build_vocabularies: as `vocabulary.build_vocabularies`.
        id_maps: as `vocabulary.IdMaps`.
        encoders: by compression, how threads compress the chunks of a shard; None where HDF5 compresses them.
    """

    build_vocabularies: Callable[
        [ThreadPoolExecutor, ParsedRows, Sequence[Table], int, Sequence[IdRule], Callable[[int], None]],
        list[CountedValues | None],
    ]
    id_maps: Callable[[Sequence[Table], Sequence[TableVocabulary | None], Sequence[IdRule]], IdMaps]
    encoders: dict[str, Encoder | None] | None


def choose_backend(name: str, source_format: SourceFormat) -> tuple[Backend, bool]:
    """The backend for `auto`, `native` or `reference`, and whether it is native, so that it may read the input.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    libraries = (*_LIBRARIES, *source_format.native_libraries)
    if name == "native" and not all(map(shared_library.is_built, libraries)):
        raise ConfigError(
            "prepare: backend = 'native': the native code was not built; run `make setup` where g++ is on PATH, or use "
            "--backend reference"
        )
    chosen = [use_native(name, library) for library in libraries]
    if not all(chosen):
        return _REFERENCE, False
    return _NATIVE, True


def _encode_lzf(chunk: NDArray[Any], shuffle: bool) -> NDArray[np.uint8] | None:
    return lzf.compress(lzf.shuffle(chunk) if shuffle else chunk)


def lzf_encoder() -> Encoder:
    """The native LZF compressor of chunks, for shards that are not prepared from a source."""
    return _encode_lzf


def _encode_gzip(chunk: NDArray[Any], shuffle: bool) -> bytes:
    return zlib.compress((lzf.shuffle(chunk) if shuffle else chunk).data, GZIP_LEVEL)


_REFERENCE = Backend(vocabulary.build_vocabularies, vocabulary.IdMaps, None)
_NATIVE = Backend(
    native_ids.build_vocabularies,
    native_ids.IdMaps,
    {"lzf": _encode_lzf, "gzip": _encode_gzip, "none": None},
)
