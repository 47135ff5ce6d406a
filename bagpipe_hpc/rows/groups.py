"""Tables whose rows have the same width: they share row numbers, servers' windows, trainers' caches and plans. Pure.

Where all tables have one width there is one group, and its row numbers run through all tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bagpipe_hpc.rows.partition import Tables


@dataclass(frozen=True)
class TableGroup:
    """The tables of one width.

    Attributes:
        width: numbers D of a row.
        numbers: which of all tables they are, ascending, `[tables of the group]`.
        tables: their rows and names. A row's number, which plans, windows and row files speak of, runs through these
            tables alone.
    """

    width: int
    numbers: tuple[int, ...]
    tables: Tables

    @property
    def total_rows(self) -> int:
        """Rows of these tables."""
        return self.tables.total_rows

    def row_name(self, row: int) -> str:
        """A row of the group as users know it, such as `table C3, row 17`."""
        table = int(np.searchsorted(self.tables.offsets, row, side="right")) - 1
        return f"table {self.tables.names[table]}, row {row - self.tables.offsets[table]}"


def table_groups(tables: Tables, widths: Sequence[int]) -> tuple[TableGroup, ...]:
    """The groups of some tables, in the order of their first tables.

    Args:
        tables: all tables.
        widths: numbers of a row of each, `[tables]`.
    """
    groups = []
    for width in dict.fromkeys(widths):
        numbers = tuple(number for number, own in enumerate(widths) if own == width)
        rows = tuple(tables.rows[number] for number in numbers)
        names = tuple(tables.names[number] for number in numbers)
        groups.append(TableGroup(width, numbers, Tables(rows, names, width=width)))
    return tuple(groups)
