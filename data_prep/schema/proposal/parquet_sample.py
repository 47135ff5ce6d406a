"""The columns of a Parquet file for a proposal: their values as texts, and whether `prepare` would read a proposal.

Shapes: `n` rows of the sample.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from data_prep.formats.columns import SparseList, Unused
from data_prep.schema.columns import SchemaColumn
from data_prep.schema.parquet_fields import ParquetFields, has_weights, unreadable
from data_prep.schema.rows import field_of

_FIRST_ROWS = 16
"""Rows that are tried first: if all rows are bad, to find the reason for each would take long."""
_NO_TEXT = "\N{REPLACEMENT CHARACTER}"
_ZERO_AND_ONE = {"0.0": "0", "1.0": "1"}


def is_list(found: pa.DataType) -> bool:
    """Whether a type is a list of values, or of values with weights."""
    if not (pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)):
        return False
    return unreadable(SparseList("", weights=":" if has_weights(found) else None), found) is None


def is_time(found: pa.DataType) -> bool:
    """Whether a type is a time since 1970, whatever its unit and zone."""
    return bool(pa.types.is_timestamp(found) or pa.types.is_date(found))


def texts_of(column: pa.Array) -> tuple[str | None, ...]:
    """The values of a column as they would be written in text, `[n]`; lists with `|` between values; None if missing.

    Times, which have types of their own, are only marked as present or missing. Other structures count as missing. A
    column with a text that is not UTF-8 has only texts that no column holds: `refusal` says what is wrong with it.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        return tuple("a time" if there else None for there in column.is_valid().to_pylist())
    if pa.types.is_nested(column.type) and not is_list(column.type):
        return (None,) * len(column)
    try:
        texts = tuple(map(_written, column.to_pylist()))
    except UnicodeDecodeError:
        return (_NO_TEXT,) * len(column)
    if set(texts) == {"0.0", "1.0"}:
        return tuple(text and _ZERO_AND_ONE[text] for text in texts)
    return texts


def refusal(column: pa.Array, proposed: SchemaColumn, missing: Sequence[str]) -> str | None:
    """Why `prepare` would not read the values of a column as is proposed; None where it would.

    Args:
        column: the values, `[n]`.
        proposed: the proposed description of the column.
        missing: texts that mean that a value is missing.
    """
    kind = field_of(proposed)
    if isinstance(kind, Unused):
        return None
    if problem := unreadable(kind, column.type):
        return problem
    fields = ParquetFields([kind], missing, _rows)
    for part in (column.slice(0, _FIRST_ROWS), column):
        if bad := fields.parse(pa.RecordBatch.from_arrays([part], names=[kind.name]))[1]:
            return f"row {bad[0].index + 1}: {bad[0].reason}"
    return None


def _rows(fields: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(fields))


def _written(value: object) -> str | None:
    if isinstance(value, list):
        return "|".join(str(item.get("value") if isinstance(item, dict) else item) for item in value)
    if isinstance(value, bool):
        return str(int(value))
    return None if value is None else str(value)
