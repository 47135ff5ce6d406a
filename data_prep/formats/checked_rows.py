"""Checks the rows that a user's own source format parses: shards would keep what is wrong with them.

Shapes: `n` rows of a block, `N` dense features, `K` labels.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SOURCE_FORMATS, EntryError
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.terminal import counted
from data_prep.formats.delimited import BadLine
from data_prep.formats.source_format import Parts, Refine, SourceFormat, row_schema


def parses_itself(source_format: SourceFormat) -> bool:
    """Whether a format reads rows with code of its own, rather than with the package's from a layout."""
    if _is_ours(source_format):
        return False
    kind = type(source_format)
    names = ("parse_block", "native_parser", "open_input", "open_unlabelled")
    return any(getattr(kind, name) is not getattr(SourceFormat, name) for name in names)


def checked_parser(parse: Callable[[Any], Any], name: str, schema: pa.Schema, source: Path) -> Callable[[Any], Any]:
    """As `parse`, with a check of what it gives.

    Args:
        parse: reads a block, as `BlockParser` or `ColumnParser`.
        name: name of the format.
        schema: schema of the rows.
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


def checked_fit(source_format: SourceFormat, name: str, parts: Parts) -> Mapping[str, Any] | None:
    """What a format takes from the training rows, as it is read back from the manifest; None where it takes nothing.

    Args:
        source_format: the format.
        name: its name.
        parts: gives the training rows.

    Raises:
        EntryError: `fit` fails, or gives what JSON cannot hold.
    """
    with SOURCE_FORMATS.blaming(name, "its fit() fails", library="pyarrow/"):
        fitted = source_format.fit(parts)
    if fitted is None:
        return None
    try:
        kept = json.loads(json.dumps(fitted, allow_nan=False))
    except (TypeError, ValueError) as error:
        cure = "return finite numbers, texts, lists and dicts of them"
        raise EntryError(
            SOURCE_FORMATS.key, name, f"its fit() gives what JSON does not hold: {error}: {cure}"
        ) from error
    if not isinstance(kept, dict):
        raise EntryError(SOURCE_FORMATS.key, name, f"its fit() gives a {type(fitted).__name__}: return a dict, or None")
    return kept


def checked_refinement(source_format: SourceFormat, name: str, fitted: Mapping[str, Any]) -> Refine:
    """A function that turns parsed rows into final ones, and checks them if the format is a user's own.

    Args:
        source_format: the format.
        name: its name.
        fitted: what `checked_fit` gave.

    Returns:
        The function; it raises `DataError` where the format's refinement fails, or gives what shards cannot hold.

    Raises:
        ConfigError: `refinement` fails, or does not take `fitted`.
    """
    with SOURCE_FORMATS.blaming(name, "its refinement() fails", library="pyarrow/"):
        refine = source_format.refinement(fitted)
    if _is_ours(source_format):
        return refine
    schema = row_schema(source_format.layout)

    def refine_and_look(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            with SOURCE_FORMATS.blaming(name, "refining rows fails", library="pyarrow/"):
                found = refine(batch)
        except EntryError as error:
            raise DataError(str(error)) from error
        if problem := _refined_problem(found, len(batch), schema):
            raise DataError(f"--format = {name!r}: its refinement gives {problem}")
        return found

    return refine_and_look


def _is_ours(source_format: SourceFormat) -> bool:
    return type(source_format).__module__.startswith("data_prep.")


def _refined_problem(found: Any, rows: int, schema: pa.Schema) -> str:
    """What is wrong with refined rows, with the cure; empty if nothing is."""
    if not isinstance(found, pa.RecordBatch):
        return f"{type(found).__name__}: return a pyarrow.RecordBatch"
    if len(found) != rows:
        return f"{counted(len(found), 'row')} for {rows}: give one for each, in their order"
    return _rows_problem(found, schema, "row_schema(self.layout)")


def _problem(found: Any, schema: pa.Schema) -> str:
    """What is wrong with the rows of a block, with the cure; empty if nothing is."""
    is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], pa.RecordBatch)
    if not (is_pair and all(isinstance(line, BadLine) for line in found[1])):
        what = [type(part).__name__ for part in found] if isinstance(found, tuple | list) else type(found).__name__
        return f"{what}: return a pyarrow.RecordBatch, and a list of BadLine"
    return _rows_problem(found[0], schema, "self.schema")


def _rows_problem(batch: pa.RecordBatch, schema: pa.Schema, schema_is: str) -> str:
    if not batch.schema.equals(schema):
        return f"columns {_words(batch.schema)}: it must be {_words(schema)} ({schema_is})"
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
    """All numbers of a column; None if one is missing."""
    if column.null_count:
        return None
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return None if values.null_count else np.asarray(values)


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
