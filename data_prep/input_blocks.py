"""Blocks of rows out of input files of either kind, text or columns, and the rows that they hold."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.parquet_blocks import ColumnBlock, read_rows
from data_prep.text_blocks import TextBlock, TextPosition, read_blocks, split_first_line

InputBlock = TextBlock | ColumnBlock


def read_input_blocks(
    sources: Sequence[Path], inputs: Sequence[TextInput | ColumnInput], start: TextPosition
) -> Iterator[InputBlock]:
    """Read files one after the other as blocks.

    Args:
        sources: the files.
        inputs: how each of them is read, as its format says.
        start: where to start, an earlier block's `end`.

    Raises:
        DataError: a file cannot be read, or is damaged or cut off.
    """
    for number in range(start.source, len(sources)):
        place = start if number == start.source else TextPosition(number)
        match inputs[number]:
            case TextInput():
                yield from read_blocks(sources[: number + 1], place)
            case ColumnInput(columns=columns):
                yield from read_rows(sources[number], number, columns, place.offset)


def parse_input_block(
    block: InputBlock, inputs: Sequence[TextInput | ColumnInput]
) -> tuple[int, pa.RecordBatch, list[BadLine]]:
    """Read the rows of a block.

    Args:
        block: of the file `block.start.source`.
        inputs: how each file is read.

    Returns:
        Lines of the file before the first that was read, the good rows, and the bad lines.
    """
    how, line = inputs[block.start.source], block.start.line
    match block, how:
        case ColumnBlock(columns=columns), ColumnInput():
            return line, *how.parse(columns)
        case TextBlock(text=text), TextInput():
            if how.header and block.start.offset == 0:
                text, line = split_first_line(text)[1], line + 1
            return line, *how.parse(text)
    raise TypeError("a block of another kind than its file")
