"""Checks whether the columns of a schema fit each other, and their keys fit what they hold; the schema calls these.

Each check raises `SettingError`, which names the column and its key.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bagpipe_hpc.config.doors import SettingError
from data_prep.formats.layout import SEPARATORS
from data_prep.schema.columns import (
    FLOAT32_LIMIT,
    CategoricalColumn,
    MultiHotColumn,
    NumericColumn,
    SchemaColumn,
    TimestampColumn,
)


def check_derived(where: str, column: SchemaColumn, named: Mapping[str, SchemaColumn]) -> None:
    """Check that a feature of `[derived]` is made of columns that exist and are of a suitable kind."""
    if not isinstance(column, NumericColumn | CategoricalColumn):
        raise SettingError(where, type(column).__name__, "derive numeric and categorical features only")
    sources = column.cross if isinstance(column, CategoricalColumn) and column.cross else (column.source,)
    for name in sources:
        key = f"{where}.{'cross' if name != column.source else 'from'}"
        if name is None:
            raise SettingError(f"{where}.from", "", "name the column that it is made of, or two by cross")
        if name not in named:
            raise SettingError(key, name, f"no such column; {nearest(name, list(named))}")
        _check_source(where, key, column, named[name])


def _check_source(where: str, key: str, column: NumericColumn | CategoricalColumn, source: SchemaColumn) -> None:
    """Check that a feature may be made of a column."""
    if isinstance(column, NumericColumn):
        fits, cure = isinstance(source, NumericColumn) and source.integer == column.integer, (
            "is no numeric column with the same integer")  # fmt: skip
    elif column.cross:
        fits = isinstance(source, CategoricalColumn) and not source.in_intervals
        cure = "is no categorical column with texts, integers or hexadecimal values"
    elif column.part:
        fits, cure = isinstance(source, TimestampColumn), "is no timestamp, of which a part could be taken"
    elif column.in_intervals:
        fits, cure = isinstance(source, NumericColumn), "is no numeric column, which could be put into intervals"
    else:
        fits = isinstance(source, CategoricalColumn) and not source.in_intervals
        fits = fits or (isinstance(source, NumericColumn) and source.integer)
        cure = "is neither a categorical column nor a numeric one of integers"
    if not fits:
        raise SettingError(key, source.name, f"{cure}; name another one")
    if isinstance(column, CategoricalColumn):
        if column.values != "text":
            raise SettingError(f"{where}.values", column.values, "leave it out: its values are those of its column")
        if column.missing is not None:
            raise SettingError(f"{where}.missing", column.missing, "leave it out, or give it to the column itself")
        if column.modulo and isinstance(source, CategoricalColumn) and source.values == "text":
            raise SettingError(f"{where}.modulo", column.modulo, f"leave it out: the values of {source.name} are texts")


def check_own(where: str, column: NumericColumn | CategoricalColumn) -> None:
    """Refuse keys of a file's column that only a derived feature may have, or that its values do not allow."""
    if column.source is not None:
        raise SettingError(f"{where}.from", column.source, "move the column to [derived]: it is made of another one")
    if isinstance(column, NumericColumn):
        return
    for key in ("cross", "part"):
        if getattr(column, key):
            raise SettingError(f"{where}.{key}", getattr(column, key), "move the column to [derived]")
    if column.values == "decimal" and not column.in_intervals:
        raise SettingError(f"{where}.values", "decimal", "give it bucketise or quantiles as well, or make it numeric")
    if column.in_intervals and column.values not in ("integer", "decimal"):
        raise SettingError(f"{where}.values", column.values, "use integer or decimal: numbers are put into intervals")
    if column.modulo and column.values not in ("integer", "hex"):
        raise SettingError(f"{where}.modulo", column.modulo, "use it with values integer or hex")
    if column.missing is not None:
        _check_missing(f"{where}.missing", column)


_WRITTEN = {
    "integer": "-?[0-9]+",
    "hex": "[0-9a-fA-F]{1,8}",
    "decimal": r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?",
    "text": r"[^\0]+",
}
"""How fields are written, as `formats.fields` reads them; that module needs more than the standard library."""


def _check_missing(key: str, column: CategoricalColumn) -> None:
    text = column.missing or ""
    fits = re.fullmatch(_WRITTEN[column.values], text, re.DOTALL) is not None
    try:
        if fits and column.values == "integer":
            fits = -(1 << 63) <= int(text) < 1 << 63
        elif fits and column.values == "decimal":
            fits = abs(float(text)) < FLOAT32_LIMIT
    except ValueError:  # an integer with thousands of digits
        fits = False
    if not fits:
        cure = f"use a text that the field could hold: its values are {column.values}"
        raise SettingError(key, column.missing, cure)


def check_words(key: str, positive: Iterable[str], missing: Sequence[str]) -> None:
    """Check that no word of a label means that the label is missing."""
    for word in positive:
        if word in missing:
            raise SettingError(key, word, "is in file.missing, so that such labels are missing; leave it out of one")


def check_separators(where: str, column: MultiHotColumn, between_fields: str) -> None:
    """Check that the separators of ids in a list, and of an id and its weight, separate nothing else."""
    for key, taken in (("separator", {between_fields}), ("weights", {between_fields, column.separator})):
        found = getattr(column, key)
        if found is not None and (found not in SEPARATORS or found in taken):
            cure = "use one character, such as | or :, that separates nothing else and that no number holds"
            raise SettingError(f"{where}.{key}", found, cure)


def check_one(columns: Iterable[SchemaColumn], kind: type[Any], name: str) -> None:
    """Check that at most one column is of a kind, whose name is `name`."""
    found = [column.name for column in columns if isinstance(column, kind)]
    if len(found) > 1:
        raise SettingError(f"columns.{found[1]}.kind", name, f"{found[0]} has it already; a row has one at most")


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion of what to write instead of an unknown name."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
