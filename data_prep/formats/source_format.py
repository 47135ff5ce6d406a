"""The contract of a source format: the door `bagpipe prepare --format`.

Shapes: `n` rows of a block, `N` dense features, `K` labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagpipe_hpc.errors import ConfigError, DataError
from data_prep.formats.delimited import BadLine, DelimitedParser, layout_rows
from data_prep.formats.fields import value_type
from data_prep.formats.layout import RowLayout, TextLayout
from data_prep.formats.native_delimited import LIBRARY
from data_prep.formats.unlabelled import unlabelled_parser, without_labels
from data_prep.inputs.files import check_header
from data_prep.inputs.parquet_blocks import is_parquet

BlockParser = Callable[[bytes], tuple[pa.RecordBatch, list[BadLine]]]
"""Reads the rows of a block of text, as `SourceFormat.parse_block`."""
ColumnParser = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, list[BadLine]]]
"""Reads the rows of a block of columns, as they are in a Parquet file; gives what `BlockParser` gives."""

Parts = Callable[[], Iterable[pa.Table]]
"""Gives parsed rows from the beginning, a part at a time."""
Refine = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Makes final rows of parsed ones, from any thread; keeps their number and order."""


@dataclass(frozen=True)
class TextInput:
    """How an input file of text is read, from several threads at once.

    Attributes:
        header: whether its first line names the columns and is not a row.
        parse: reads a block of its other lines.
    """

    header: bool
    parse: BlockParser


@dataclass(frozen=True)
class ColumnInput:
    """How a Parquet file is read, from several threads at once.

    Attributes:
        columns: names of the file's columns that are read.
        parse: reads a block of these columns. The index of a `BadLine` is the row's number in the block.
    """

    columns: tuple[str, ...]
    parse: ColumnParser


class SourceFormat(ABC):
    """What raw rows look like, and how they become columns.

    A preparation makes one object of the class and calls it in this order: `describe` before any file is opened; then
    `open_input` for each file, before rows of any file are read. The parser that this gives, `parse_block` unless a
    format says otherwise, is called for each block of about 2 MiB, from several threads at once. After parsing nothing
    is called, except `fit` and `refinement` where a format takes something from the training rows.

    Attributes:
        layout: what `describe` returned.
        schema: schema of the parsed rows: `label`, uint8, 0 or 1, `[K]` a row where there are several; `weight`,
            float32, 0 or more, absent where samples have none; `dense`, float32 `[N]` a row, finite, absent where N is
            0; then a column for each feature by its name. Values are uint32 where they are `hex` or `bucket`, int64 for
            `integer`, string for `text`. A feature with one value a sample is null where the value is missing; one with
            any number holds lists of values, or of `{value, weight}` with float32 weights; nothing in lists is null.
        native_libraries: compiled parts of the package that `native_parser` needs.

    Args:
        settings: the format's own settings, an object of its class `Settings`.
    """

    native_libraries: tuple[str, ...] = (LIBRARY,)

    def __init__(self, settings: Any) -> None:
        self.layout = self.describe(settings)
        self.schema = row_schema(self.layout)
        self._parser = None
        if isinstance(self.layout, TextLayout):
            self._parser = DelimitedParser(self.layout, self.schema, layout_rows(self.layout, self.schema))

    @abstractmethod
    def describe(self, settings: Any) -> RowLayout:
        """What rows hold; for a text of lines and fields a `TextLayout`, with the separator and the header.

        Raises:
            SettingError: the format cannot have the value of a setting.
        """

    def parse_block(self, text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        """Read the rows of a block of whole lines by a `TextLayout`. A format of another kind of text replaces this.

        Args:
            text: lines of one file that end with LF, CRLF or CR, without the file's header and byte order mark.

        Returns:
            The n good rows, of `schema`, in order, and the bad lines in order. Empty lines are neither.

        Raises:
            ConfigError: the format describes no `TextLayout`, and does not replace this method.
        """
        if self._parser is None:
            name = type(self).__name__
            raise ConfigError(f"source format: {name} describes no TextLayout, and has no parse_block; give it one")
        return self._parser.parse_block(text)

    def open_input(self, source: Path, native: bool) -> TextInput | ColumnInput:
        """Look at the beginning of a file, and say how its rows are read.

        Args:
            source: a file that is neither empty nor an archive.
            native: whether to use native code where there is any.

        Raises:
            DataError: the file is not of the format, or a text's header names other columns.
        """
        _refuse_parquet(source)
        header = False
        if isinstance(self.layout, TextLayout):
            check_header(source, self.layout)
            header = self.layout.header
        return TextInput(header, (self.native_parser() if native else None) or self.parse_block)

    def open_unlabelled(self, source: Path, native: bool) -> TextInput | ColumnInput:
        """As `open_input`, for rows to score: columns that no prediction needs may be absent, and are ignored.

        A format that replaces `open_input` must replace this, too.

        Returns:
            How the rows are read; all their labels are then 0.
        """
        _refuse_parquet(source)
        parse_block = (self.native_parser() if native else None) or self.parse_block
        if isinstance(self.layout, TextLayout):
            return TextInput(self.layout.header, unlabelled_parser(parse_block, source, self.layout))
        return TextInput(False, lambda text: without_labels(*parse_block(text)))

    def fit(self, parts: Parts) -> dict[str, Any] | None:  # noqa: ARG002  # most formats need nothing of them
        """What the format takes from the training rows once they are parsed, as plain values that JSON holds.

        The same rows must give the same values, however they are divided into parts. The manifest records the values
        (`settings["fitted"]`), so that later rows are refined with the same ones.

        Args:
            parts: gives the training rows from the beginning, a table of `schema` at a time.

        Returns:
            The values; None where the format takes nothing, so that the parsed rows are final.
        """
        return None

    def refinement(self, fitted: Mapping[str, Any]) -> Refine:
        """A function that makes final rows, of the types of `row_schema(layout)`, of parsed ones, by what `fit` gave.

        Raises:
            ConfigError: `fit` gives no such values.
        """
        raise ConfigError(f"{type(self).__name__} takes nothing from training rows, and was given {sorted(fitted)}")

    def native_parser(self) -> BlockParser | None:
        """A faster reader that gives what `parse_block` gives for any text; None where there is none.

        A format with a `TextLayout` has one, unless it replaces `parse_block`.
        """
        if not isinstance(self.layout, TextLayout) or type(self).parse_block is not SourceFormat.parse_block:
            return None
        rows_of = layout_rows(self.layout, self.schema)
        return DelimitedParser(self.layout, self.schema, rows_of, native=True).parse_block


def _refuse_parquet(source: Path) -> None:
    if is_parquet(source):
        raise DataError(
            f"{source}: is a Parquet file, which this format does not read; describe its columns in a schema "
            "(bagpipe prepare --schema), or write its rows as text"
        )


def row_schema(layout: RowLayout) -> pa.Schema:
    """The schema of parsed rows."""
    labels = len(layout.labels)
    label = pa.field("label", pa.uint8() if labels == 1 else pa.list_(pa.uint8(), labels))
    weight = [pa.field("weight", pa.float32())] if layout.weight else []
    dense = [pa.field("dense", pa.list_(pa.float32(), len(layout.dense)))] if layout.dense else []
    values = [pa.field(column.name, value_type(column)) for column in layout.features]
    others = [pa.field(name, pa.int64()) for name in layout.others]
    return pa.schema([label, *weight, *dense, *values, *others])
