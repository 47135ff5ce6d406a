"""Looks at the rows that a source format of a user's own parses itself: shards would keep what is wrong with them.

Shapes: `n` rows of a block, `N` dense features, `K` labels.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SOURCE_FORMATS, EntryError
from bagpipe_hpc.errors import DataError
from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import SourceFormat


def parses_itself(source_format: SourceFormat) -> bool:
    """Whether a format reads rows by code of its own, and not by the package's from a layout."""
    kind = type(source_format)
    if kind.__module__.startswith("data_prep."):
        return False
    names = ("parse_block", "native_parser", "open_input", "open_unlabelled")
    return any(getattr(kind, name) is not getattr(SourceFormat, name) for name in names)


def checked_parser(parse: Callable[[Any], Any], name: str, schema: pa.Schema, source: Path) -> Callable[[Any], Any]:
    """As `parse`, and looks at what it gives.

    Args:
        parse: reads a block, as `BlockParser` or `ColumnParser`.
        name: of the format.
        schema: of the rows.
        source: the file, for messages.

    Returns:
        The parser; it raises `DataError` where `parse` fails, or gives what shards cannot hold.
    """

    def parse_and_look(block: Any) -> Any:
        try:
            with SOURCE_FORMATS.blaming(name, "parsing a block fails", library="pyarrow/"):
                found = parse(block)
        except EntryError as error:
            raise DataError(f"{source}: {error}") from error
        if problem := _problem(found, schema):
            raise DataError(f"{source}: --format = {name!r}: of a block it gives {problem}")
        return found

    return parse_and_look


def _problem(found: Any, schema: pa.Schema) -> str:
    """What is wrong with the rows of a block, with the cure; empty if nothing is."""
    is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], pa.RecordBatch)
    if not (is_pair and all(isinstance(line, BadLine) for line in found[1])):
        what = [type(part).__name__ for part in found] if isinstance(found, tuple | list) else type(found).__name__
        return f"{what}: return a pyarrow.RecordBatch, and a list of BadLine"
    batch: pa.RecordBatch = found[0]
    if not batch.schema.equals(schema):
        return f"columns {_words(batch.schema)}: it must be {_words(schema)} (self.schema)"
    for column, wanted, is_right in (
        ("label", "0 or 1", lambda values: values <= 1),
        ("weight", "0 or more, and finite", lambda values: (values >= 0) & (values < np.inf)),
        ("dense", "finite", np.isfinite),
    ):
        if column in schema.names:
            values = _numbers(batch.column(column))
            if values is None:
                return f"a {column} that is null: leave such rows out, with a BadLine"
            if not (right := is_right(values)).all():
                return f"a {column} of {values[~right][0]}: it must be {wanted}"
    return ""


def _numbers(column: pa.Array) -> NDArray[Any] | None:
    """All numbers of a column; None where one is missing."""
    if column.null_count:
        return None
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return None if values.null_count else np.asarray(values)


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
