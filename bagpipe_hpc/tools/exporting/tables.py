"""The tables of an exported model: their weights alone, by name, streamed from a checkpoint whatever their size.

As safetensors a table is one tensor `[rows, D]` with the table's name. Small tables share a file, up to a limit of its
size; a larger table has a file of its own. An index says which file has which table, in the usual form for files of
large language models. As Parquet each table is a file of its own with a row for each id.

Shapes: `n` rows of a piece, `D` width of the table.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.storage.atomic_write import file_sha256, fsync
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.saved_rows import stream_rows
from bagpipe_hpc.storage.tensor_file import METADATA, StreamedTensor, write_tensors
from bagpipe_hpc.tools.exporting.vocabularies import ExportedValues

INDEX_FILE = "tables.safetensors.index.json"
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class ExportedTable:
    """A table of the checkpoint.

    Attributes:
        name: its name.
        rows: number of its ids.
        width: numbers in a row, D.
        group: which of the checkpoint's groups it is in.
        first: number of its first row in that group.
    """

    name: str
    rows: int
    width: int
    group: int
    first: int

    @property
    def bytes(self) -> int:
        """Bytes of its weights."""
        return _FLOAT_BYTES * self.rows * self.width

    def pieces(self, checkpoint: Checkpoint, work: LongWork) -> Iterator[NDArray[np.float32]]:
        """Its weights in the order of the ids, float32 `[n, D]` each; tells `work` how many rows were read.

        Raises:
            CheckpointError: a file is damaged.
        """
        most = stream_rows(checkpoint.manifest.record_columns(self.width))
        with checkpoint.open_rows(self.group) as saved:
            for first in range(self.first, self.first + self.rows, most):
                records = saved.read(first, min(first + most, self.first + self.rows))
                yield records[:, : self.width]
                work.advance(len(records))


def tables_of(checkpoint: Checkpoint) -> list[ExportedTable]:
    """The tables of a checkpoint, in the order of the data."""
    found: dict[int, ExportedTable] = {}
    for number, group in enumerate(checkpoint.manifest.groups):
        tables = group.tables
        for table, name, rows, first in zip(group.numbers, tables.names, tables.rows, tables.offsets, strict=False):
            found[table] = ExportedTable(name, rows, group.width, number, int(first))
    return [found[number] for number in sorted(found)]


def require_names(tables: Sequence[ExportedTable]) -> None:
    """Check that safetensors can hold tables of these names.

    Raises:
        DataError: it reserves one of the names.
    """
    if any(table.name == METADATA for table in tables):
        raise DataError(f"a table is named {METADATA}, which safetensors keeps for itself; use --tables parquet")


def shared_files(tables: Sequence[ExportedTable], most_bytes: int) -> list[list[ExportedTable]]:
    """Which tables share a file: one after the other while they stay below `most_bytes` together."""
    files: list[list[ExportedTable]] = []
    room = 0
    for table in tables:
        if not files or table.bytes > room:
            files.append([])
            room = most_bytes
        files[-1].append(table)
        room -= table.bytes
    return files


def write_safetensors(
    folder: Path, checkpoint: Checkpoint, tables: Sequence[ExportedTable], most_bytes: int
) -> tuple[dict[str, str], list[FileInfo]]:
    """Write the tables as safetensors, with their index.

    Args:
        folder: the folder to write to.
        checkpoint: the checkpoint to read.
        tables: its tables.
        most_bytes: most bytes of a file with several tables.

    Returns:
        The file of each table, by the table's name, and what was written.
    """
    files = shared_files(tables, most_bytes)
    of_tables: dict[str, str] = {}
    written = []
    with _exporting(tables) as work:
        for number, group in enumerate(files, start=1):
            name = "tables.safetensors" if len(files) == 1 else f"tables-{number:05d}-of-{len(files):05d}.safetensors"
            tensors = [_tensor(checkpoint, table, work) for table in group]
            written.append(write_tensors(folder / name, tensors, {"format": "pt"}))
            of_tables |= {table.name: name for table in group}
    index = {"metadata": {"total_size": sum(table.bytes for table in tables)}, "weight_map": of_tables}
    written.append(write_text(folder / INDEX_FILE, json.dumps(index, indent=1, ensure_ascii=False) + "\n"))
    return of_tables, written


def _tensor(checkpoint: Checkpoint, table: ExportedTable, work: LongWork) -> StreamedTensor:
    return StreamedTensor(table.name, "F32", (table.rows, table.width), lambda: table.pieces(checkpoint, work))


def _exporting(tables: Sequence[ExportedTable]) -> LongWork:
    return LongWork("exporting", sum(table.rows for table in tables), "rows")


def write_parquet(
    folder: Path, checkpoint: Checkpoint, tables: Sequence[ExportedTable], values: Sequence[ExportedValues]
) -> tuple[dict[str, str], list[FileInfo]]:
    """Write each table as a Parquet file with the columns `id`, `value` (null where an id has none) and `weights`.

    Args:
        folder: the folder to write to.
        checkpoint: the checkpoint to read.
        tables: its tables.
        values: for each table, which value has which id.

    Returns:
        As `write_safetensors`.
    """
    of_tables = {table.name: f"table-{number:05d}.parquet" for number, table in enumerate(tables)}
    written = []
    with _exporting(tables) as work:
        for table, reader in zip(tables, values, strict=True):
            path = folder / of_tables[table.name]
            kind = pa.list_(pa.float32(), table.width)
            schema = pa.schema([("id", pa.int64()), ("value", reader.arrow_type), ("weights", kind)])
            with pq.ParquetWriter(path, schema, use_dictionary=False) as file:  # hardly any number repeats
                first = 0
                for piece in table.pieces(checkpoint, work):
                    last = first + len(piece)
                    weights = pa.FixedSizeListArray.from_arrays(pa.array(piece.reshape(-1)), table.width)
                    columns: list[Any] = [pa.array(np.arange(first, last)), reader.of_rows(first, last), weights]
                    file.write_batch(pa.record_batch(columns, schema))
                    first = last
            fsync(path)
            written.append(FileInfo(path.name, path.stat().st_size, file_sha256(path)))
    return of_tables, written


def write_text(path: Path, text: str) -> FileInfo:
    """Write a new small file, and force it to the disk."""
    path.write_text(text, encoding="utf-8")
    fsync(path)
    return FileInfo(path.name, path.stat().st_size, file_sha256(path))
