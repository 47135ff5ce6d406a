"""Which raw value has which id, for a service: of numbers as safetensors, of texts as JSON.

Shapes: `n` values of a piece.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.tensor_file import StreamedTensor, write_tensors
from bagpipe_hpc.storage.vocabularies.pieces import VocabularyPieces, open_vocabulary

NUMBERS_FILE = "vocabulary.safetensors"
_PieceOf = Callable[[VocabularyPieces, int, int], NDArray[Any]]


def kind_of(is_text: bool) -> str:
    """Kind of the values of a table, as in `schema.json`."""
    return "texts" if is_text else "numbers"


class ExportedValues:
    """Which values a table has. It holds none of them: they are read piece by piece each time they are needed.

    Attributes:
        name: name of the table.
        is_hashed: whether a hash turns values into ids, so that the values are not recorded.
        is_text: whether values are texts.
        count: number of values.
        buckets: ids from 1 to this are shared, by a hash, by all values that have no id of their own.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        table: name of the table.

    Raises:
        DataError: its values are absent or damaged.
    """

    def __init__(self, directory: Path, manifest: ShardManifest, table: str) -> None:
        self.name = table
        self.is_hashed = manifest.vocabularies is None or table in manifest.hashed_tables
        self.open = partial(open_vocabulary, directory, manifest, table)
        if self.is_hashed:
            (rows,) = (info.rows for info in manifest.tables if info.name == table)
            self.is_text, self.count, self.buckets = False, 0, rows - 1
            return
        with self.open() as vocabulary:
            self.is_text, self.count = vocabulary.is_text, vocabulary.count
            self.buckets = vocabulary.unseen_buckets

    @property
    def kind(self) -> str:
        """Kind of the values, as in `schema.json`."""
        return "hashed" if self.is_hashed else kind_of(self.is_text)

    @property
    def arrow_type(self) -> Any:
        """Type of the values; null where they were hashed."""
        return pa.null() if self.is_hashed else pa.string() if self.is_text else pa.int64()

    def of_rows(self, first: int, last: int) -> Any:
        """The value of each id from `first` to below `last`, a pyarrow array; null where an id has none."""
        if self.is_hashed:
            return pa.nulls(last - first)
        with self.open() as vocabulary:
            numbers = vocabulary.number_of(first), vocabulary.number_of(last)
            values = pa.array(vocabulary.values(*numbers), self.arrow_type)
            places = np.zeros(last - first, dtype=np.int64)
            has_value = np.zeros(last - first, dtype=np.bool_)
            own = vocabulary.ids(*numbers) - first
            places[own], has_value[own] = np.arange(len(own)), True
        return values.take(pa.array(places, mask=~has_value))

    def pieces(self, of: _PieceOf) -> Iterator[NDArray[Any]]:
        """The result of `of` for each piece of the values."""
        with self.open() as vocabulary:
            for piece in vocabulary.pieces():
                yield of(vocabulary, *piece)


def write_vocabularies(folder: Path, tables: Sequence[ExportedValues]) -> tuple[dict[str, str | None], list[FileInfo]]:
    """Write which value has which id.

    Args:
        folder: the folder to write to.
        tables: all tables.

    Returns:
        The file of each table, by the table's name, None where values are hashed; and what was written.
    """
    files: dict[str, str | None] = {}
    tensors: list[StreamedTensor] = []
    written = []
    for number, table in enumerate(tables):
        if table.is_hashed:
            files[table.name] = None
        elif table.is_text:
            path = folder / f"vocabulary-{number:05d}.json"
            files[table.name] = path.name
            written.append(_write_texts(path, table))
        else:
            files[table.name] = NUMBERS_FILE
            for what, of in (("values", _numbers), ("ids", _ids)):
                name, pieces = f"{table.name}.{what}", partial(table.pieces, of)
                tensors.append(StreamedTensor(name, "I64", (table.count,), pieces))
    if tensors:
        written.append(write_tensors(folder / NUMBERS_FILE, tensors, {"format": "pt"}))
    return files, written


def _numbers(vocabulary: VocabularyPieces, first: int, last: int) -> NDArray[np.int64]:
    return vocabulary.values(first, last).astype("<i8")


def _ids(vocabulary: VocabularyPieces, first: int, last: int) -> NDArray[np.int64]:
    return vocabulary.ids(first, last).astype("<i8")


def _write_texts(path: Path, table: ExportedValues) -> FileInfo:
    """Write a JSON object with the id of each text, a line each."""
    with path.open("x", encoding="utf-8") as file, table.open() as vocabulary:
        file.write("{")
        separator = "\n"
        for piece in vocabulary.pieces():
            for text, row in zip(vocabulary.values(*piece), vocabulary.ids(*piece).tolist(), strict=True):
                file.write(f"{separator}{json.dumps(text, ensure_ascii=False)}: {row}")
                separator = ",\n"
        file.write("\n}\n")
        file.flush()
        os.fsync(file.fileno())
    return FileInfo(path.name, path.stat().st_size, file_sha256(path))
