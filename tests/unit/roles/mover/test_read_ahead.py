"""Servers are told what will be fetched and written back, in the order in which it comes to them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from bagpipe_hpc.plan.batch_plan import NO_GROUP, GroupPlan, ReceivedPlan, SharedPlan
from bagpipe_hpc.roles.mover.read_ahead import ReadAhead
from tests.unit.roles.mover.test_mover_order import NO_ROWS, NO_SLOTS


@dataclass
class Traffic:
    """Notes the announcements of a group of tables in a list that all groups share."""

    told: list[str]
    reads_ahead: bool = True
    name: str = field(default="")

    def announce_put(self, plan: Any) -> None:
        self.told.append(f"put {self.name}{plan}")

    def announce_fetch(self, plan: GroupPlan) -> None:
        self.told.append(f"get {self.name}{plan.own}")


def plan(batch: int, after: list[int], retires: int = NO_GROUP, *, samples: int = 2) -> ReceivedPlan:
    """The plan of a batch whose groups of tables are fetched after these groups of batches."""
    nothing = (NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)
    own: Any = f"of batch {batch}"
    return ReceivedPlan(
        tuple(GroupPlan(SharedPlan(batch, samples, one, retires, 0, 0, *nothing), own) for one in after)
    )


def test_write_backs_are_announced_before_what_waits_for_them() -> None:
    """And no sooner; with the closing plan all that are left, its own included."""
    told: list[str] = []
    ahead = ReadAhead([Traffic(told)])  # type: ignore[list-item]
    for one in (plan(0, [0]), plan(1, [0], 1), plan(2, [0], 2), plan(3, [1]), plan(4, [1], 3)):
        ahead.announce(one)
    assert told == ["get of batch 0", "get of batch 1", "get of batch 2", "put of batch 1", *told[4:]]
    assert told[4:] == ["get of batch 3", "get of batch 4"]
    told.clear()
    ahead.announce(plan(5, [0], 4, samples=0))
    assert told == ["put of batch 2", "put of batch 4", "put of batch 5", "get of batch 5"]
    told.clear()
    ahead.announce(plan(0, [0]))
    assert told == ["get of batch 0"], "the next segment begins with nothing left over"


@pytest.mark.parametrize("reads_ahead", [(True, False), (False, True)])
def test_one_group_of_tables_on_disk_is_enough(reads_ahead: tuple[bool, bool]) -> None:
    """Each group is told its own part; a plan that waits for the group that it retires puts before it gets."""
    told: list[str] = []
    ahead = ReadAhead([Traffic(told, wants, f"{part} ") for part, wants in zip("AB", reads_ahead, strict=True)])  # type: ignore[misc]
    ahead.announce(plan(0, [0, 1], 1))
    assert told == ["put A of batch 0", "put B of batch 0", "get A of batch 0", "get B of batch 0"]


def test_servers_with_rows_in_memory_are_told_nothing() -> None:
    told: list[str] = []
    ahead = ReadAhead([Traffic(told, reads_ahead=False)])  # type: ignore[list-item]
    ahead.announce(plan(0, [0], 1, samples=0))
    assert told == []
