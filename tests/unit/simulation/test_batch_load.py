"""Plans become numbers: what the busiest trainer does, and what all do together."""

import numpy as np
import pytest

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.simulation.batch_load import Hop, broadcast_copies, loads_of

BATCHES = [Bags.one_hot(np.asarray(rows)[:, None]) for rows in ([0, 1, 2, 3], [0, 1, 4, 5], [0, 6, 7, 7])]
"""Four samples of one feature each. Of two trainers, the first has the first two samples of a batch."""


def test_the_numbers_of_a_small_segment() -> None:
    """Window 2: of batch 0, rows 2 and 3 are private to the second trainer, 0 and 1 are used again."""
    planner = LookaheadPlanner(10, 2, Window(2, 1))
    first, second, third, closing = loads_of(plan_segment(planner, BATCHES))
    assert (first.samples, first.unique_rows, first.absent_rows) == (4, 4, 4)
    assert (first.fetched, first.fetched_by_all) == (4, 6)  # both get 0 and 1, the second trainer 2 and 3 as well
    assert (first.reduced_now, first.reduced_later) == (2, 0)
    assert (first.written, first.prefetch_after, first.retire_group) == (0, 0, 0)
    # 1 is dead after batch 1, private to the first trainer; 4 and 5 are the second one's.
    assert (second.unique_rows, second.absent_rows, second.fetched, second.fetched_by_all) == (4, 2, 2, 2)
    assert (second.reduced_now, second.retire_group) == (1, 1)
    assert (second.written, second.written_by_all) == (2, 2)  # rows 2 and 3 leave with group 1
    assert (third.unique_rows, third.absent_rows, third.prefetch_after) == (3, 2, 1)
    assert (third.written, third.written_by_all) == (2, 3)  # row 1 by the first trainer, 4 and 5 by the second
    assert (closing.samples, closing.unique_rows, closing.written_by_all) == (0, 0, 3)


def test_what_homes_exchange_is_that_of_the_busiest_trainer() -> None:
    """Batch 0: 0 and 1 are at the first trainer, 2 and 3 at the second; both use 0 in batch 1, only the first 1."""
    batches = [Bags.one_hot(np.asarray(rows)[:, None]) for rows in ([0, 1, 2, 0], [0, 1, 0, 3], [3, 5, 5, 2])]
    first, second, third, closing = loads_of(plan_segment(HomePlanner(10, 2, Window(3, 1)), batches))
    none, one = (Hop(0, 0),), (Hop(1, 1),)
    assert (first.reduced_now, first.now_home, first.later_home) == (0, one, none)  # 0, which the second uses as well
    assert (first.rest_copies, first.next_copies) == (one, one)
    assert (second.now_home, second.later_home) == (none, one)  # 3 to the first
    assert (second.rest_copies, second.next_copies) == (none, one)
    assert (third.now_home, third.later_home, third.rest_copies) == (none, one, one)  # 3 there, 5 here
    assert (closing.now_home, closing.rest_copies) == ((), ())


@pytest.mark.parametrize("grid", [Grid(1, 6), Grid(2, 3), Grid(3, 2)])
def test_rows_over_a_grid_are_those_of_the_busiest_trainer_in_each_hop(grid: Grid) -> None:
    """Counted row by row along the way from home to user."""
    rng = np.random.default_rng(5)
    batches = [Bags.one_hot((20 * rng.random((12, 3)) ** 2).astype(np.int64)) for _ in range(4)]
    plans = list(plan_segment(HomePlanner(20, 6, Window(2, 1), grid=grid), batches))
    for plan, load in zip(plans[:-1], loads_of(plans), strict=False):
        sent, taken = np.zeros((2, 6), int), np.zeros((2, 6), int)
        for user, part in enumerate(plan.trainers):
            assert part.exchanged
            for home, rows in enumerate(part.exchanged.counts.rest_from.tolist()):
                relay = grid.place(home)[0] * grid.columns + grid.place(user)[1]
                for hop, (start, end) in enumerate(((home, relay), (relay, user))):
                    sent[hop, start] += rows * (start != end)
                    taken[hop, end] += rows * (start != end)
        most = np.maximum(sent.max(1), taken.max(1))
        assert [hop.rows for hop in load.rest_copies] == most[: len(load.rest_copies)].tolist()
        assert load.rest_copies[0].messages <= grid.columns - 1
        assert len(load.rest_copies) == (1 if grid.is_direct else 2)


def test_plan_bytes_are_those_of_the_arrays() -> None:
    """Batch 1 of the segment above: the shared part goes to two trainers in two copies."""
    planner = LookaheadPlanner(10, 2, Window(2, 1))
    plan = list(plan_segment(planner, BATCHES))[1]
    (load,) = loads_of([plan])
    shared = 4 * 1  # a slot to reduce
    first = 2 * 2 + 4 * 1  # short positions of two look-ups, a private slot
    second = 2 * 2 + 4 * 2 + 12 * 2 + 12 * 2  # the same of two rows, two fetches and two write-backs with slots
    assert load.plan_bytes == 2 * shared + first + second
    assert load.plan_bytes_in == shared + second


@pytest.mark.parametrize(("receivers", "copies"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (256, 9)])
def test_a_broadcast_tree_starts_at_the_oracle(receivers: int, copies: int) -> None:
    assert broadcast_copies(receivers) == copies
