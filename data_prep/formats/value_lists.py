"""Reads columns of any number of values in one field, such as `12|7|12` or, with weights, `12:0.5|7:2`.

Shapes: `n` rows, `V` values of all rows.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.formats.columns import SparseList

ParseValues = Callable[[pa.Array], pa.Array]
"""Reads texts `[V]`, none of which is missing.

Raises:
    pyarrow.ArrowInvalid: a text cannot be read.
"""


def parse_lists(
    column: pa.Array, kind: SparseList, list_type: pa.ListType, values: ParseValues, weights: ParseValues
) -> pa.ListArray:
    """The lists of a column; a missing field is an empty list.

    Args:
        column: text `[n]`, string or binary, missing fields as nulls.
        kind: what the fields look like.
        list_type: type of the lists, as in `source_format.row_schema`.
        values: reads the values.
        weights: reads their weights to float32.

    Raises:
        pyarrow.ArrowInvalid: a value is empty, has no weight where it should, or cannot be read; which one is for the
            caller to find.
    """
    lists = pc.split_pattern(column, kind.separator)
    offsets = np.zeros(len(column) + 1, dtype=np.int32)
    np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(), out=offsets[1:])
    texts = lists.flatten()
    if not len(texts):
        read = pa.array([], list_type.value_type)
    elif kind.weights is None:
        read = values(_filled(texts))
    else:
        read = _weighted(texts, kind.weights, values, weights)
    return pa.ListArray.from_arrays(pa.array(offsets), read)


def list_values(column: pa.Array) -> pa.Array:
    """The values of a column of parsed rows, row after row, whether rows hold lists or one value each."""
    if not pa.types.is_list(column.type):
        return column
    flat = column.flatten()
    return flat.field("value") if pa.types.is_struct(flat.type) else flat


def _weighted(texts: pa.Array, separator: str, values: ParseValues, weights: ParseValues) -> pa.StructArray:
    """Values and weights `[V]`: the parts before and after the last separator of each text."""
    pairs = pc.split_pattern(texts, separator, max_splits=1, reverse=True)
    if not pc.all(pc.equal(pc.list_value_length(pairs), 2), min_count=0).as_py():
        raise pa.ArrowInvalid("a value has no weight")
    both = pairs.flatten()
    of_values, of_weights = (both.take(pa.array(np.arange(part, len(both), 2))) for part in (0, 1))
    read = [values(_filled(of_values)), weights(_filled(of_weights))]
    return pa.StructArray.from_arrays(read, names=["value", "weight"])


def _filled(texts: pa.Array) -> pa.Array:
    """The texts; refused if one is empty."""
    if pc.any(pc.equal(pc.binary_length(texts), 0), min_count=0).as_py():
        raise pa.ArrowInvalid("a value of a list is empty")
    return texts
