"""Checks that a batch's look-ups are what planners expect, and names the first that is not."""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.plan.bags import Bags

MOST_LOOK_UPS = int(np.iinfo(np.int32).max)
"""Most look-ups of a batch: plans number them with 32 bits."""


def require_sound_sizes(rows: Bags) -> None:
    """Check that the offsets match the bags and values, and that plans can number the values.

    Raises:
        DataError: they do not match, or there are too many values.
    """
    look_ups = rows.values.size
    if look_ups > MOST_LOOK_UPS:
        raise DataError(f"a batch of {look_ups} look-ups: positions are 32 bits wide, use {MOST_LOOK_UPS} or fewer")
    if rows.offsets is None:
        return
    if len(rows.offsets) % rows.features != 1 % rows.features:
        raise DataError(f"a batch with {len(rows.offsets)} offsets: {rows.features} features a sample, and an end")
    first, last = rows.offsets[[0, -1]].tolist()
    if first != 0 or last != look_ups:
        raise DataError(f"the bags of a batch lie from {first} to {last}, and it has {look_ups} values")


def require_ascending_bags(rows: Bags) -> None:
    """Check that bags lie one after the other.

    Raises:
        DataError: a bag ends before it begins.
    """
    if rows.offsets is not None and (lengths := np.diff(rows.offsets)).min(initial=0) < 0:
        bag = int(np.argmax(lengths < 0))
        sample, feature = divmod(bag, rows.features)
        begin, end = rows.offsets[bag : bag + 2].tolist()
        raise DataError(f"sample {sample}, feature {feature}: its bag begins at {begin} and ends at {end}")


def require_rows_of_tables(rows: Bags, total_rows: int) -> None:
    """Check that a batch's bags are sound, and that its rows are in the tables.

    Raises:
        DataError: they are not.
    """
    require_sound_sizes(rows)
    require_ascending_bags(rows)
    if rows.values.size and not 0 <= rows.values.min() <= rows.values.max() < total_rows:
        raise wrong_row(rows, np.zeros(rows.features, np.int64), np.full(rows.features, total_rows))


def wrong_row(rows: Bags, firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> DataError:
    """The error that names the first row outside its feature's table; there must be one.

    Args:
        rows: global rows.
        firsts: first row of each feature's table, `[F]`.
        ends: its last row, and one, `[F]`.
    """
    columns = rows.columns
    place = int(np.argmax((rows.values < firsts[columns]) | (rows.values >= ends[columns])))
    sample, feature = int(rows.sample_of_value[place]), int(columns[place])
    where = f"sample {sample}, feature {feature}"
    if rows.offsets is not None:
        where += f", place {place - int(rows.offsets[sample * rows.features + feature])} of its bag"
    return DataError(
        f"row {rows.values[place]} of {where}: the feature's table has rows {firsts[feature]} to below {ends[feature]}"
    )
