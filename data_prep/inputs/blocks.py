"""Reads a range of an input file, text or Parquet, as blocks, and parses the rows of a block."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.inputs.parquet_blocks import ColumnBlock, read_rows
from data_prep.inputs.ranges import InputRange
from data_prep.inputs.text_blocks import TextBlock, TextPosition, line_start, read_blocks, split_first_line

InputBlock = TextBlock | ColumnBlock


def read_range(
    source: Path, how: TextInput | ColumnInput, piece: InputRange, start: TextPosition | None
) -> Iterator[InputBlock]:
    """Read a range of a file as blocks. Lines count from the range's first, rows of a Parquet file from the file's.

    Args:
        source: the file.
        how: how the file is read, as its format says.
        piece: the range.
        start: where to start, an earlier block's `end`; None for the beginning of the range.

    Raises:
        DataError: the file cannot be read, or is damaged or cut off.
    """
    number = piece.source
    match how:
        case TextInput():
            place = start or TextPosition(number, line_start(source, piece.begin))
            yield from read_blocks(source, place, None if piece.end is None else line_start(source, piece.end))
        case ColumnInput(columns=columns):
            yield from read_rows(source, number, columns, start.offset if start else piece.begin, piece.end)


def bytes_of(block: InputBlock, piece: InputRange) -> int:
    """About how many bytes of the file were read for a block of a range."""
    if isinstance(block, TextBlock):
        return block.file_bytes
    return piece.bytes * len(block.columns) // ((piece.end or 0) - piece.begin)


def parse_input_block(block: InputBlock, how: TextInput | ColumnInput) -> tuple[int, pa.RecordBatch, list[BadLine]]:
    """Read the rows of a block.

    Args:
        block: a block of a range.
        how: how its file is read.

    Returns:
        The number of lines before the block, counted as in `read_range`, the good rows, and the bad lines.
    """
    line = block.start.line
    match block, how:
        case ColumnBlock(columns=columns), ColumnInput():
            return line, *how.parse(columns)
        case TextBlock(text=text), TextInput():
            if how.header and block.start.offset == 0:
                text, line = split_first_line(text)[1], line + 1
            return line, *how.parse(text)
    raise TypeError("a block of another kind than its file")
