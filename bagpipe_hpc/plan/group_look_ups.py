"""The look-ups of a batch that go to one group of tables. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags


@dataclass(frozen=True)
class GroupLookUps:
    """Which look-ups of a sample are of a group of tables, and what its rows are numbered there.

    Attributes:
        features: numbers of the features, ascending, `[F']`.
        shifts: for each of them a row's number in the group less its number among all tables, `[F']`.
    """

    features: tuple[int, ...]
    shifts: tuple[int, ...]

    def of(self, rows: Bags) -> Bags:
        """The group's part of a batch: its rows by their numbers in the group; `rows` itself where that is the same."""
        own = rows.of_features(self.features)
        return own.plus(self._added) if any(self.shifts) else own

    @cached_property
    def _added(self) -> NDArray[np.int64]:
        return np.asarray(self.shifts, dtype=np.int64)


def group_look_ups(
    feature_tables: Sequence[int], numbers: Sequence[int], first_rows: Sequence[int], first_of_all: Sequence[int]
) -> GroupLookUps:
    """The look-ups of one group.

    Args:
        feature_tables: number of each feature's table, among all tables.
        numbers: of the group's tables among all tables.
        first_rows: number of the first row of each of them in the group.
        first_of_all: number of the first row of each of all tables among all rows.
    """
    shift = {number: int(first) - int(first_of_all[number]) for number, first in zip(numbers, first_rows, strict=True)}
    features = tuple(feature for feature, table in enumerate(feature_tables) if table in shift)
    return GroupLookUps(features, tuple(shift[feature_tables[feature]] for feature in features))
