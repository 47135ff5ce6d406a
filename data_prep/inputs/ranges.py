"""Ranges of input files that ranks parse independently of each other, by a rule that depends only on the files.

So a preparation may go on with another number of ranks, and its result does not depend on this number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.inputs.parquet_blocks import row_group_bounds
from data_prep.inputs.text_blocks import is_compressed

RANGE_BYTES = 128 << 20
"""Bytes of a range of plain text: about half a million rows of Criteo's."""


@dataclass(frozen=True)
class InputRange:
    """A piece of an input file.

    Attributes:
        source: number of the file, from 0.
        begin: byte of a plain text, or row of a Parquet file, at which it begins; 0 for a compressed text.
        end: where the next range begins; None for the end of a text. A range of text has the lines that begin in it.
        bytes: about how many bytes of the file have to be read for it.
        is_text: whether `begin` and `end` are bytes, and lines are counted from the range's beginning.
    """

    source: int
    begin: int
    end: int | None
    bytes: int
    is_text: bool = True


def plan_ranges(
    sources: Sequence[Path], inputs: Sequence[TextInput | ColumnInput], range_bytes: int
) -> list[InputRange]:
    """Cut input files into ranges, in their order.

    Args:
        sources: the files.
        inputs: how each of them is read, as its format says.
        range_bytes: about how many bytes a range has. A compressed text is one range, whatever its size.

    Raises:
        DataError: a file cannot be read, or is damaged.
    """
    return [
        piece
        for number, (source, how) in enumerate(zip(sources, inputs, strict=True))
        for piece in _ranges_of(number, source, how, range_bytes)
    ]


def _ranges_of(number: int, source: Path, how: TextInput | ColumnInput, range_bytes: int) -> Iterator[InputRange]:
    size = source.stat().st_size
    if isinstance(how, ColumnInput):
        yield from _row_groups(number, source, size, range_bytes)
    elif is_compressed(source):
        yield InputRange(number, 0, None, size)
    else:
        for begin in range(0, size, range_bytes):
            end = begin + range_bytes
            yield InputRange(number, begin, end if end < size else None, min(end, size) - begin)


def _row_groups(number: int, source: Path, size: int, range_bytes: int) -> Iterator[InputRange]:
    """Runs of row groups."""
    bounds = row_group_bounds(source)
    rows = bounds[-1]
    begin = 0
    for end in bounds[1:]:
        part = size * (end - begin) // max(rows, 1)
        if end == rows or part >= range_bytes:
            yield InputRange(number, begin, end, part, is_text=False)
            begin = end
    if not rows:
        yield InputRange(number, 0, 0, size, is_text=False)
