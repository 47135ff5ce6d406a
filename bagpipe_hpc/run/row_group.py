"""The tables of one width, as a run has them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bagpipe_hpc.plan.group_look_ups import GroupLookUps
from bagpipe_hpc.rows.groups import TableGroup
from bagpipe_hpc.rows.record import RowRecord


@dataclass(frozen=True)
class RowGroup:
    """Tables whose rows have the same width; they share row numbers, windows, caches and plans.

    Attributes:
        tables: which they are.
        record: what travels with each of their rows.
        look_ups: the features that look up in them.
    """

    tables: TableGroup
    record: RowRecord
    look_ups: GroupLookUps

    @property
    def width(self) -> int:
        """Numbers D of a row."""
        return self.tables.width

    @property
    def bytes(self) -> int:
        """Size of the records of all rows."""
        return self.tables.total_rows * self.record.bytes


def describe_widths(groups: Sequence[RowGroup]) -> str:
    """What rows of several widths take, beside what they would take if all were as wide as the widest."""
    widest = max(group.width for group in groups)
    taken = sum(group.bytes for group in groups)
    padded = sum(group.tables.total_rows * replace(group.record, embedding_dim=widest).bytes for group in groups)
    each = ", ".join(f"{group.tables.total_rows} of {group.width}" for group in groups)
    return (
        f"rows of {len(groups)} widths ({each} numbers): {taken / 1e6:.1f} MB with optimizer state; all as wide as the "
        f"widest would take {padded / 1e6:.1f} MB ({padded / taken:.2f} times)"
    )
