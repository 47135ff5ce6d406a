"""Which raw value has which id, for a service: of numbers as safetensors, of texts as JSON.

Shapes: `V` values of a table.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import file_sha256, fsync
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.vocabulary import TableVocabulary, read_table_vocabulary
from bagpipe_hpc.storage.tensor_file import StreamedTensor, write_tensors

NUMBERS_FILE = "vocabulary.safetensors"


class TableValueReader:
    """Which values a table has. Holds none of them: they are read anew where they are asked for.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        table: name of the table.

    Raises:
        DataError: its values are absent or damaged.
    """

    def __init__(self, directory: Path, manifest: ShardManifest, table: str) -> None:
        self.table = table
        self.is_hashed = manifest.vocabularies is None or table in manifest.hashed_tables
        self._source = directory, manifest, table
        self.is_text, self.count, self.buckets = False, 0, 0
        if self.is_hashed:
            (rows,) = (info.rows for info in manifest.tables if info.name == table)
            self.buckets = rows - 1
        else:
            vocabulary = self.read()
            self.is_text = vocabulary.values.dtype == np.object_
            self.count, self.buckets = len(vocabulary.values), vocabulary.unseen_buckets

    @property
    def arrow_type(self) -> Any:
        """Type of the values; null where they were hashed."""
        return pa.null() if self.is_hashed else pa.string() if self.is_text else pa.int64()

    def read(self) -> TableVocabulary:
        """Which value has which id; of a table that is not hashed."""
        return read_table_vocabulary(*self._source)

    def column(self) -> Any:
        """The value of each id, an array of pyarrow; null where an id has none."""
        (rows,) = (info.rows for info in self._source[1].tables if info.name == self.table)
        if self.is_hashed:
            return pa.nulls(rows)
        vocabulary = self.read()
        places = np.full(rows, -1, dtype=np.int64)
        places[vocabulary.ids] = np.arange(self.count)
        found = pa.array(vocabulary.values, self.arrow_type)
        return found.take(pa.array(places, mask=places < 0))


def write_vocabularies(
    folder: Path, readers: Sequence[TableValueReader]
) -> tuple[dict[str, str | None], list[FileInfo]]:
    """Write which value has which id.

    Args:
        folder: where to.
        readers: of all tables.

    Returns:
        The file of each table, by its name, None where values are hashed; and what was written.
    """
    files: dict[str, str | None] = {}
    tensors: list[StreamedTensor] = []
    written = []
    for number, reader in enumerate(readers):
        if reader.is_hashed:
            files[reader.table] = None
        elif reader.is_text:
            path = folder / f"vocabulary-{number:05d}.json"
            files[reader.table] = path.name
            written.append(_write_texts(path, reader))
        else:
            files[reader.table] = NUMBERS_FILE
            of_values, of_ids = f"{reader.table}.values", f"{reader.table}.ids"
            tensors.append(StreamedTensor(of_values, "I64", (reader.count,), partial(_numbers, reader)))
            tensors.append(StreamedTensor(of_ids, "I64", (reader.count,), partial(_ids, reader)))
    if tensors:
        written.append(write_tensors(folder / NUMBERS_FILE, tensors, {"format": "pt"}))
    return files, written


def _numbers(reader: TableValueReader) -> Iterator[NDArray[np.int64]]:
    yield reader.read().values.astype("<i8")


def _ids(reader: TableValueReader) -> Iterator[NDArray[np.int64]]:
    yield reader.read().ids.astype("<i8")


def _write_texts(path: Path, reader: TableValueReader) -> FileInfo:
    """Write a JSON object with the id of each text, a line each."""
    with path.open("x", encoding="utf-8") as file:
        file.write("{")
        separator = "\n"
        vocabulary = reader.read()
        for text, number in zip(vocabulary.values, vocabulary.ids.tolist(), strict=True):
            file.write(f"{separator}{json.dumps(text, ensure_ascii=False)}: {number}")
            separator = ",\n"
        file.write("\n}\n")
    fsync(path)
    return FileInfo(path.name, path.stat().st_size, file_sha256(path))
