"""Which rows servers hear of, and what a fetch and an addition leave in slots and bases of rows that are added."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.batch_plan import Additions, GroupPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.roles.mover.row_traffic import RowTraffic
from bagpipe_hpc.rows.store import Use

NO_ROWS, NO_SLOTS = np.empty(0, np.int64), np.empty(0, np.int32)
SHARED = SharedPlan(0, 1, 0, 0, 1, 1, NO_SLOTS, NO_SLOTS, np.asarray([9]), np.asarray([0], np.int32), NO_ROWS, NO_SLOTS)


class Cache:
    """Records of one number, by slot."""

    def __init__(self, *records: float) -> None:
        self.records = np.asarray(records, np.float32).reshape(-1, 1)
        self.device = SimpleNamespace(
            to_device=lambda array: array, new_array=lambda shape: np.empty(shape, dtype=np.float32)
        )

    def gather_records(self, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.records[slots]

    def scatter(self, slots: NDArray[np.int32], records: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        assert len(slots) == len(records) == len(rows)
        self.records[slots] = records


class Window:
    """Servers whose row k is k hundred."""

    def __init__(self) -> None:
        self.added: dict[int, float] = {}
        self.announced: list[tuple[Use, list[int]]] = []

    def announce(self, use: Use, rows: NDArray[np.int64]) -> None:
        self.announced.append((use, rows.tolist()))

    def start_get(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> Any:
        records[:, 0] = 100 * rows
        return SimpleNamespace()

    def start_add(self, rows: NDArray[np.int64], records: NDArray[np.float32]) -> Any:
        self.added |= dict(zip(rows.tolist(), records[:, 0].tolist(), strict=True))
        return SimpleNamespace()


def fetching(rows: list[int], slots: list[int], new: list[int], merged: list[int]) -> GroupPlan:
    of_slots = np.asarray(slots, np.int32)
    nothing = NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS
    based = {"new_slots": np.asarray(new, np.int32), "merged_slots": np.asarray(merged, np.int32)}
    return GroupPlan(SHARED, TrainerPlan(NO_SLOTS, NO_SLOTS, np.asarray(rows), of_slots, *nothing, **based))


def test_rows_come_into_their_bases_and_keep_their_changes() -> None:
    """One row without a base, a new one and one with a change of 7; then the plans of two batches at once."""
    cache = Cache(0, 0, 0, 0, 57, 50, 1, 2)
    traffic = RowTraffic(Window(), cache, 1)  # type: ignore[arg-type]
    traffic.keep(traffic.start_fetch([fetching([1, 2, 3], [1, 3, 5], [2], [4])]))
    assert cache.records[:, 0].tolist() == [900, 100, 200, 200, 307, 300, 1, 2]
    traffic.keep(traffic.start_fetch([fetching([1, 4], [1, 6], [], []), fetching([5, 6], [3, 5], [], [2, 4])]))
    assert cache.records[:, 0].tolist() == [900, 100, 500, 500, 607, 600, 400, 2]


def test_what_is_added_is_in_slot_and_base_from_then_on() -> None:
    """As the servers have it: 2**24 less -(2**23 + 1) is 25165824 in float32, and with that the base is 2**24 - 1."""
    cache, window = Cache(57, 50, 1 << 24, -(1 << 23) - 1), Window()
    traffic = RowTraffic(window, cache, 1)  # type: ignore[arg-type]
    rows, slots, bases = np.asarray([8, 9]), np.asarray([0, 2], np.int32), np.asarray([1, 3], np.int32)
    traffic.add(Additions(rows, slots, bases))
    assert window.added == {8: 7.0, 9: 25165824.0}
    assert cache.records[:, 0].tolist() == [57, 57, (1 << 24) - 1, (1 << 24) - 1]


def test_servers_hear_of_all_that_a_plan_fetches_and_writes_back() -> None:
    """In the order of its fetch: rows of all trainers first, then this one's own."""
    window, plan = Window(), fetching([1, 2], [1, 3], [], [])
    traffic = RowTraffic(window, Cache(), 1)  # type: ignore[arg-type]
    own = replace(plan.own, write_back_rows=np.asarray([7, 5]))
    traffic.announce_fetch(plan)
    traffic.announce_put(own)
    assert window.announced == [(Use.GET, [9, 1, 2]), (Use.PUT, [7, 5])]
    assert traffic.start_fetch([plan]).numbers.tolist() == [9, 1, 2]


def test_rows_that_are_put_or_added_are_noted() -> None:
    noted: list[list[int]] = []
    updated: Any = SimpleNamespace(add=lambda rows: noted.append(rows.tolist()))
    traffic = RowTraffic(Window(), Cache(), 1, updated)  # type: ignore[arg-type]
    put = replace(fetching([], [], [], []).own, write_back_rows=np.asarray([7, 5]))
    slots = np.asarray([0], np.int32)
    traffic.note(put)
    traffic.note(replace(put, add_rows=np.asarray([8]), add_slots=slots, base_slots=slots))
    assert noted == [[7, 5], [7, 5], [8]]
