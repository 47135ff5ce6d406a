"""What the native planner and the one in NumPy both take, by hand, and what both refuse."""

from collections.abc import Callable

import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from tests.unit.planning.drawn_bags import bags_of_lists

pytestmark = pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")


PLANNERS: dict[str, Callable[..., Planner]] = {
    "native": lambda tables, trainers=1: NativePlanner(
        np.asarray([0, 10, 20]), trainers, Window(1, 1), feature_tables=tables
    ),
    "NumPy": lambda tables, trainers=1: LookaheadPlanner(20, trainers, Window(1, 1), feature_tables=tables),
}
"""Of two tables of ten rows, for the tables of the features."""


@pytest.mark.parametrize("kind", PLANNERS)
def test_a_batch_has_all_features(kind: str) -> None:
    with pytest.raises(DataError, match="a batch of 3 features: there are 2"):
        PLANNERS[kind]((0, 1)).load(Bags.one_hot(np.zeros((5, 3), dtype=np.int64)))


@pytest.mark.parametrize("kind", PLANNERS)
def test_rows_are_planned_table_after_table(kind: str) -> None:
    """By hand, so that both planners are not wrong together: features 0 and 2 share a table."""
    first, second = [[3, 3, 1], [], [5]], [[5], [12, 11], [1, 3, 7]]
    planner = PLANNERS[kind]((0, 1, 0))
    (plan, _) = plan_segment(planner, [bags_of_lists([first, second])])
    (own,) = plan.trainers
    assert own.fetch_rows.tolist() == [3, 1, 5, 7, 12, 11]
    assert own.positions.tolist() == [0, 0, 1, 2, 2, 4, 5, 1, 0, 3]


@pytest.mark.parametrize("kind", PLANNERS)
def test_batches_without_look_ups_have_plans(kind: str) -> None:
    nothing = [[], [], []]
    batches = [bags_of_lists(lists) for lists in ([nothing, nothing], [[[4], [], []], nothing], [], [nothing])]
    plans = list(plan_segment(PLANNERS[kind]((0, 1, 0), trainers=3), batches))
    assert [plan.shared.unique_rows for plan in plans] == [0, 1, 0, 0, 0]
    assert [part.positions.size for part in plans[1].trainers] == [1, 0, 0]
    assert sum(part.write_back_rows.size for plan in plans for part in plan.trainers) == 1


@pytest.mark.parametrize("kind", PLANNERS)
def test_a_wrong_row_of_a_bag_is_named(kind: str) -> None:
    """The planner in NumPy knows no tables, but it knows how many rows there are."""
    rows = [[[0], [12, 13], [3]]] * 30 + [[[1, 2], [11, 25], [9]], [[-3], [], []]]
    ends = 20
    message = rf"row 25 of sample 30, feature 1, place 1 of its bag: .* has rows (10|0) to below {ends}"
    with pytest.raises(DataError, match=message):
        PLANNERS[kind]((0, 1, 0)).load(bags_of_lists(rows))


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize(
    ("offsets", "what"),
    [
        ([0, 1, 2, 4, 3, 3, 5], "sample 1, feature 0: its bag begins at 4 and ends at 3"),
        ([0, 1, 2, 4, 4, 4, 6], "the bags of a batch lie from 0 to 6, and it has 5 values"),
        ([1, 1, 2, 4, 4, 4, 5], "the bags of a batch lie from 1 to 5, and it has 5 values"),
        ([0, 1, 2, 4, 4, 5], "a batch with 6 offsets: 3 features a sample, and an end"),
        ([], "a batch with 0 offsets: 3 features a sample, and an end"),
    ],
)
def test_bags_that_overlap_are_refused(kind: str, offsets: list[int], what: str) -> None:
    with pytest.raises(DataError, match=what):
        PLANNERS[kind]((0, 0, 0)).load(Bags(np.zeros(5, dtype=np.int64), 3, np.asarray(offsets, dtype=np.int64)))


@pytest.mark.parametrize("kind", PLANNERS)
def test_more_look_ups_than_plans_can_number_are_refused(kind: str) -> None:
    values = np.broadcast_to(np.int64(0), 2**31)
    with pytest.raises(DataError, match="a batch of 2147483648 look-ups: positions are 32 bits wide, use 2147483647"):
        PLANNERS[kind]((0,)).load(Bags(values, 1, np.asarray([0, 2**31])))
