"""Trainers that add to one row do so in rank order: each in a round of its own, and nothing is lost on the way."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.planning.addition_order import in_rank_order

NO_ROWS, NO_SLOTS = np.empty(0, np.int64), np.empty(0, np.int32)
NOTHING = TrainerPlan(NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)


def plan_of(rows: list[list[int] | None], others: tuple[BatchPlan, ...] = ()) -> BatchPlan:
    """Trainer t adds `rows[t]`, which lie in slots 100 + row, their bases in 200 + row; None: it says nothing of it."""
    shared = SharedPlan(0, 1, 0, 1, 0, 0, NO_SLOTS, NO_SLOTS, NO_ROWS, NO_SLOTS, NO_ROWS, NO_SLOTS)
    parts = []
    for own in rows:
        if own is None:
            parts.append(NOTHING)
            continue
        numbers = np.asarray(own, np.int64)
        slots, bases = (numbers.astype(np.int32) + offset for offset in (100, 200))
        parts.append(replace(NOTHING, add_rows=numbers, add_slots=slots, base_slots=bases))
    return BatchPlan(shared, tuple(parts), others)


drawn = st.lists(st.none() | st.lists(st.integers(0, 7), unique=True, max_size=8), min_size=1, max_size=5)


@given(drawn, drawn)
def test_each_row_is_added_in_rank_order(rows: list[list[int] | None], others: list[list[int] | None]) -> None:
    """All trainers have as many rounds, none of which has a row twice; slots and bases go with their rows."""
    ordered = in_rank_order(plan_of(rows, (plan_of(others),)))
    for before, plan in ((rows, ordered), (others, ordered.others[0])):
        added_by = defaultdict(list)
        rounds = {len(part.addition_rounds) for part in plan.trainers if part.additions is not None}
        assert len(rounds) <= 1
        for number in range(max(rounds, default=0)):
            seen: set[int] = set()
            for trainer, part in enumerate(plan.trainers):
                if part.additions is None:
                    assert rounds == {1}, "nobody waits between rounds"
                    continue
                of_round = part.addition_rounds[number]
                np.testing.assert_array_equal(of_round.slots, of_round.rows + 100)
                np.testing.assert_array_equal(of_round.bases, of_round.rows + 200)
                assert seen.isdisjoint(of_round.rows.tolist())
                seen |= set(of_round.rows.tolist())
                for row in of_round.rows.tolist():
                    added_by[row].append(trainer)
        assert all(first < second for trainers in added_by.values() for first, second in pairwise(trainers))
        assert added_by == {
            row: [trainer for trainer, own in enumerate(before) if own and row in own]
            for row in {row for own in before for row in own or ()}
        }


def test_there_are_no_more_rounds_than_a_row_has_trainers() -> None:
    """A plan whose rows have one trainer each is as it was."""
    plan = in_rank_order(plan_of([[3, 1], [2], [5, 1, 3], None]))
    assert [part.add_rounds.tolist() for part in plan.trainers if part.add_rounds is not None] == [
        [2, 0],
        [1, 0],
        [1, 2],
        [0, 0],
    ]
    alone = plan_of([[3, 1], [2]])
    assert in_rank_order(alone).trainers is alone.trainers


def test_rounds_travel_with_the_plan() -> None:
    part = in_rank_order(plan_of([[3, 1], [1]])).trainers[1]
    again = TrainerPlan.decode(part.encode())
    assert [of_round.rows.tolist() for of_round in again.addition_rounds] == [[], [1]]
