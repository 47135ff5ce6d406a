"""Parsed rows on disk, between the one pass over the text and the passes that count and write.

They are Arrow files, uncompressed, so that they can be memory-mapped and counted without a copy. They save a second,
costly pass over (often compressed) text, and a killed preparation goes on from them.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.checked_json import Count, Positive
from data_prep.formats.source_format import Refine
from data_prep.formats.value_lists import list_values
from data_prep.inputs.text_blocks import TextPosition


@dataclass(frozen=True)
class BadRow:
    """A malformed row.

    Attributes:
        line: its line, from 1, counted from the first line of its range; in a Parquet file, its row.
        reason: what is wrong with it.
    """

    line: Positive
    reason: str


@dataclass(frozen=True)
class Part:
    """One file of parsed rows, a part of a range of the input.

    Attributes:
        range: number of the range.
        number: number of the part in its range, from 0.
        rows: number of rows; where there are none, there is no file.
        bytes: about how many bytes of the input were read for it.
        end: position in the input after its last row; lines count from the range's first line.
        is_last: whether the range ends there.
        skipped: malformed rows of its piece of the input.
    """

    range: Count
    number: Count
    rows: Count
    bytes: Count
    end: TextPosition
    is_last: bool
    skipped: tuple[BadRow, ...]

    @property
    def place(self) -> tuple[int, int]:
        """Sorts parts in the order of the input; their names do so only up to a million ranges."""
        return self.range, self.number

    @property
    def name(self) -> str:
        """Its name, without suffix."""
        return part_name(self.range, self.number)

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"{self.name}.arrow"


def part_name(number_of_range: int, number: int) -> str:
    """The name of a part, without suffix."""
    return f"rows-{number_of_range:06d}-{number:05d}"


class ParsedRows:
    """All parsed rows in the order of the input.

    Args:
        directory: folder of the parts.
        parts: the parts in order.

    Attributes:
        rows: number of rows.
    """

    def __init__(self, directory: Path, parts: Sequence[Part]) -> None:
        self._refine: Refine | None = None
        self._parts = [(directory / part.file, part.rows) for part in parts if part.rows]
        self._bounds = np.cumsum([0] + [rows for _, rows in self._parts])
        self.rows = int(self._bounds[-1])
        self._open_part = lru_cache(maxsize=4)(_map_part)

    def refined(self, refine: Refine) -> "ParsedRows":
        """The same rows, refined by `refine` when they are read."""
        found = copy(self)
        found._refine = refine
        return found

    def values(self, columns: Sequence[str], rows: int) -> pa.ChunkedArray:
        """All values of some columns of the first `rows` rows, part by part; their memory is that of the page cache."""
        return pa.chunked_array([chunk for part in self.parts(rows) for chunk in values_of(part, columns)])

    def longest(self, column: str) -> int:
        """Most values of a row in a column of lists."""
        return max((int(lengths.max(initial=0)) for lengths in self._lengths(column)), default=0)

    def list_values(self, column: str) -> int:
        """Values of all rows in a column of lists."""
        return sum(int(lengths.sum()) for lengths in self._lengths(column))

    def _lengths(self, column: str) -> Iterator[NDArray[np.int32]]:
        for part in self._parts:
            for chunk in _map_part(*part).column(column).chunks:  # parsed lists are final
                yield np.diff(chunk.offsets.to_numpy())

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """The first `rows` rows, a part at a time; to open a part takes as long as to count some of its columns."""
        for number, part in enumerate(self._parts):
            if self._bounds[number] < rows:
                table = _map_part(*part).slice(0, rows - int(self._bounds[number]))
                yield table if self._refine is None else pa.Table.from_batches(map(self._refine, table.to_batches()))

    def read(self, first: int, last: int) -> list[pa.RecordBatch]:
        """Rows `first` up to `last`, in pieces."""
        pieces: list[pa.RecordBatch] = []
        for number in range(int(np.searchsorted(self._bounds, first, side="right")) - 1, len(self._parts)):
            start = int(self._bounds[number])
            if start >= last:
                break
            part = self._open_part(*self._parts[number])
            begin, end = max(first, start), min(last, int(self._bounds[number + 1]))
            pieces += part.slice(begin - start, end - begin).to_batches()
        return pieces if self._refine is None else [self._refine(piece) for piece in pieces]


def values_of(rows: pa.Table, columns: Sequence[str]) -> list[pa.Array]:
    """All values of some columns."""
    return [list_values(chunk) for column in columns for chunk in rows.column(column).chunks]


def _map_part(path: Path, rows: int) -> pa.Table:
    """A part of `rows` rows, mapped into memory; the mapping lives as long as the table or a column of it.

    Arrow's `included_fields` does not help to read one column: it copies the whole part.
    """
    try:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            if len(table) != rows:
                raise pa.ArrowInvalid(f"{len(table)} rows instead of {rows}")
            return table
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{path}: the parsed rows of this unfinished preparation cannot be read ({error}); "
            f"remove {path.parent.parent} and run bagpipe prepare again"
        ) from error
