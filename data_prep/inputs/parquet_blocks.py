"""Reads Parquet files as blocks of rows, each with its position, so that messages can name any row."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from bagpipe_hpc.errors import DataError
from data_prep.inputs.text_blocks import TextPosition

MAGIC = b"PAR1"
"""The first bytes of a Parquet file."""
BLOCK_ROWS = 1 << 15
"""Most rows of a block."""
BLOCK_BYTES = 4 << 20
"""Rows that take more memory than this, with long lists or texts, are given in several blocks: threads work on many."""


@dataclass(frozen=True)
class ColumnBlock:
    """Rows of one Parquet file.

    Attributes:
        columns: the requested columns, in the requested order, with the types of the file.
        start: where the block starts; both `offset` and `line` are the number of rows before it.
        end: where the next block starts.
    """

    columns: pa.RecordBatch
    start: TextPosition
    end: TextPosition


def is_parquet(source: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with source.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def column_types(source: Path) -> dict[str, pa.DataType]:
    """The columns of a file and their types, in order.

    Raises:
        DataError: the file is damaged, or two of its columns have one name.
    """
    with _opened(source) as file:
        schema = file.schema_arrow
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise DataError(f"{source}: has two columns named {name!r}; write the file with a name for each")
    return dict(zip(schema.names, schema.types, strict=True))


def row_group_bounds(source: Path) -> list[int]:
    """The row at which each row group of a file begins, then the number of rows: `[groups + 1]`, ascending.

    Raises:
        DataError: the file is damaged.
    """
    with _opened(source) as file:
        bounds = [0]
        for group in range(file.num_row_groups):
            bounds.append(bounds[-1] + file.metadata.row_group(group).num_rows)
    return bounds


def read_rows(
    source: Path, number: int, columns: Sequence[str], first: int = 0, last: int | None = None
) -> Iterator[ColumnBlock]:
    """Read rows `first` up to `last` of a file in blocks; memory is that of a row group and of `BLOCK_ROWS` rows.

    A block never crosses the end of a row group, so the blocks of a range that begins at a row group do not depend on
    what was read before.

    Args:
        source: a Parquet file.
        number: number of the file among the inputs, for the positions of the blocks.
        columns: names of the columns to read.
        first: row to begin with, best the first of a row group: the rows before it in its group are decoded, too.
        last: row to end before; None reads to the end.

    Raises:
        DataError: the file is damaged or cut off.
    """
    bounds = row_group_bounds(source)
    last = bounds[-1] if last is None else last
    with _opened(source) as file:
        for group, (begin, end) in enumerate(pairwise(bounds)):
            if end <= first or begin >= last:
                continue
            at = begin
            for batch in file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=list(columns), use_threads=False):
                start, stop = max(at, first), min(at + len(batch), last)
                if start < stop:
                    part = batch.slice(start - at, stop - start).select(list(columns))
                    for rows in _pieces(part):
                        place = TextPosition(number, start, start)
                        start += len(rows)
                        yield ColumnBlock(rows, place, TextPosition(number, start, start))
                at += len(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, halved until they take no more than `BLOCK_BYTES`; they share the batch's memory."""
    if len(batch) == 1 or batch.nbytes <= BLOCK_BYTES:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


@contextmanager
def _opened(source: Path) -> Iterator[pa_parquet.ParquetFile]:
    """Open the file, and turn what is wrong with it into an error that names it."""
    try:
        with pa_parquet.ParquetFile(source) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{source}: cannot be read as Parquet ({error}); it may be damaged or cut off: fetch or write it again"
        ) from error
