"""The native planner gives the reference's plans, byte for byte, for any number of threads and any kind of state."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.partition import table_offsets

pytestmark = pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")


@dataclass(frozen=True)
class Segment:
    """Batches of a segment, whether it trains, and the steps before it."""

    batches: list[Bags]
    training: bool
    first_step: int


@dataclass(frozen=True)
class Run:
    """Tables, several segments over them, and the planner's arguments."""

    offsets: np.ndarray
    segments: list[Segment]
    trainers: int
    window: Window
    verify: bool


@st.composite
def runs(draw: st.DrawFn, *, columns_share_rows: bool = False) -> Run:
    """A table a column, or one table for all; batches of up to three blocks of the native planner; skewed or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = draw(st.integers(1, 5))
    table_rows = rng.integers(1, draw(st.sampled_from([3, 60, 700])), columns, endpoint=True)
    offsets = table_offsets(table_rows.tolist())
    trainers = draw(st.integers(1, 4))
    lookahead = draw(st.integers(1, 8))
    window = Window(lookahead, draw(st.integers(1, max(1, lookahead - 1))))
    segments: list[Segment] = []
    step = 0
    for _ in range(draw(st.integers(1, 3))):
        shape = (draw(st.integers(0, 15)), draw(st.sampled_from([1, 2, 9, 130, 300])), columns)
        skewed = rng.random(shape) ** draw(st.sampled_from([1, 4]))
        if columns_share_rows:
            rows = (skewed * offsets[-1]).astype(np.int64)
        else:
            rows = (skewed * table_rows).astype(np.int64) + offsets[:-1]
        training = draw(st.booleans())
        segments.append(Segment(one_hot(rows), training, step))
        step += len(rows) if training else 0
    return Run(offsets, segments, trainers, window, draw(st.booleans()))


def one_hot(batches: Iterable[np.ndarray]) -> list[Bags]:
    """Batches of global rows `[n, F]`."""
    return list(map(Bags.one_hot, batches))


def reference(run: Run) -> LookaheadPlanner:
    return LookaheadPlanner(int(run.offsets[-1]), run.trainers, run.window, verify=run.verify)


def plans(planner: Planner, run: Run) -> Iterable[BatchPlan]:
    for segment in run.segments:
        yield from plan_segment(planner, segment.batches, training=segment.training, first_step=segment.first_step)


def assert_same_plans(found: Iterable[BatchPlan], expected: Iterable[BatchPlan]) -> None:
    for plan, wanted in zip_longest(found, expected):
        for record, wanted_record in zip((plan.shared, *plan.trainers), (wanted.shared, *wanted.trainers), strict=True):
            assert record.encode().tobytes() == wanted_record.encode().tobytes(), (record, wanted_record)


@settings(max_examples=200, deadline=None)
@given(runs(), st.integers(1, 4), st.data())
def test_plans_are_the_references(run: Run, threads: int, data: st.DataObject) -> None:
    tables = run.offsets.size - 1
    sparse = np.asarray(data.draw(st.lists(st.booleans(), min_size=tables, max_size=tables)))
    native = NativePlanner(run.offsets, run.trainers, run.window, sparse=sparse, threads=threads, verify=run.verify)
    sound = reference(run)
    assert_same_plans(plans(native, run), plans(sound, run))
    assert native.size().shared_slots == sound.size().shared_slots
    assert native.size().private_slots == sound.size().private_slots


@settings(max_examples=60, deadline=None)
@given(runs(columns_share_rows=True), st.booleans())
def test_columns_may_share_the_rows_of_a_single_table(run: Run, sparse: bool) -> None:
    whole = np.asarray([0, run.offsets[-1]])
    native = NativePlanner(whole, run.trainers, run.window, sparse=np.asarray([sparse]), threads=2, verify=run.verify)
    assert_same_plans(plans(native, run), plans(reference(run), run))


@settings(max_examples=40, deadline=None)
@given(runs())
def test_measuring_finds_the_slots_that_planning_takes(run: Run) -> None:
    measuring = NativePlanner(run.offsets, run.trainers, run.window)
    for segment in run.segments:
        measure_segment(measuring, segment.batches)
    size = measuring.size()
    capacities = (size.shared_slots, size.private_slots)
    native = NativePlanner(run.offsets, run.trainers, run.window, *capacities, verify=run.verify)
    sound = LookaheadPlanner(int(run.offsets[-1]), run.trainers, run.window, *capacities, verify=run.verify)
    assert_same_plans(plans(native, run), plans(sound, run))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_without_samples_has_no_rows(sparse: bool, threads: int) -> None:
    nothing, row = one_hot([np.zeros((0, 2), dtype=np.int64), np.asarray([[4, 5]])])
    states = np.asarray([sparse, sparse])
    planner = NativePlanner(np.asarray([0, 5, 6]), 2, Window(3, 1), sparse=states, threads=threads, verify=True)
    fetched = [
        plan.shared.fetch_rows.size + sum(part.fetch_rows.size for part in plan.trainers)
        for plan in plan_segment(planner, [nothing, row, nothing, row, nothing, nothing, row])
    ]
    assert fetched[:7] == [0, 2, 0, 0, 0, 0, 2]


def test_more_rows_in_a_batch_than_sixteen_bits_can_name() -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 200_000, (4, 70_001, 1))
    run = Run(np.asarray([0, 200_000]), [Segment(one_hot(rows), True, 0)], 3, Window(3, 2), verify=False)
    native = NativePlanner(run.offsets, run.trainers, run.window, threads=2)
    assert_same_plans(plans(native, run), plans(reference(run), run))


def test_tables_of_billions_of_rows() -> None:
    """Far-apart rows are planned as their neighbours would be; the reference plans small numbers in their place."""
    rng = np.random.default_rng(2)
    spread = 2**33 + 1
    small = [rng.integers([0, 500], [500, 1000], (40, 2)) for _ in range(30)]
    large = [rows * spread for rows in small]
    native = NativePlanner(np.asarray([0, 500, 1000]) * spread, 2, Window(6, 2), sparse=np.ones(2, dtype=bool))
    sound = LookaheadPlanner(1000, 2, Window(6, 2))
    for plan, wanted in zip(plan_segment(native, one_hot(large)), plan_segment(sound, one_hot(small)), strict=True):
        np.testing.assert_array_equal(plan.shared.fetch_rows, wanted.shared.fetch_rows * spread)
        for part, wanted_part in zip(plan.trainers, wanted.trainers, strict=True):
            np.testing.assert_array_equal(part.positions, wanted_part.positions)
            np.testing.assert_array_equal(part.write_back_rows, wanted_part.write_back_rows * spread)
    assert native.size().state_bytes < 2 * 2**16


def test_state_is_eight_bytes_a_row_or_follows_the_window() -> None:
    """However many rows pass through it, the hash table keeps those of the window."""
    rows = 1_000_000
    passing = np.arange(rows).reshape(500, 2000, 1)
    dense = NativePlanner(np.asarray([0, rows]), 1, Window(4, 1))
    sparse = NativePlanner(np.asarray([0, rows]), 1, Window(4, 1), sparse=np.asarray([True]))
    assert dense.size().state_bytes == 8 * rows
    measure_segment(sparse, one_hot(passing))
    assert sparse.size().state_bytes <= 46 * 5 * 2000
    assert sparse.size().window_bytes < 2_000_000


@pytest.mark.parametrize("row", [-1, 4, 10, 2**40])
def test_a_row_of_another_table_is_named(row: int) -> None:
    """The first in the order of the samples, whichever thread finds another one sooner."""
    rows = np.tile([1, 5], (300, 1))
    rows[200, 0] = rows[250, 1] = rows[201, 0] = row
    planner = NativePlanner(np.asarray([0, 4, 10]), 2, Window(2, 1), threads=2)
    message = rf"row {row} of sample 200, feature 0: the feature's table has rows 0 to below 4"
    with pytest.raises(DataError, match=message):
        planner.load(Bags.one_hot(rows))


@pytest.mark.parametrize("offsets", [[0, 4, 3], [-1, 4, 10]])
def test_tables_of_fewer_than_no_rows_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="must be 0 or more, and ascend"):
        NativePlanner(np.asarray(offsets), 2, Window(2, 1))


@pytest.mark.parametrize("rows", [2**60, 2**61, 2**62])
def test_state_that_no_memory_holds_is_refused(rows: int) -> None:
    """8 bytes a row, whose number wraps round to few or none."""
    with pytest.raises(MemoryError):
        NativePlanner(np.asarray([0, rows]), 2, Window(2, 1))


def test_a_batch_has_a_column_for_each_table() -> None:
    planner = NativePlanner(np.asarray([0, 4, 10]), 2, Window(2, 1))
    with pytest.raises(DataError, match="a batch with 3 columns: there are 2 tables"):
        planner.load(Bags.one_hot(np.zeros((5, 3), dtype=np.int64)))


@pytest.mark.parametrize("capacities", [(3, 100), (100, 2)])
def test_used_up_slots_are_reported_as_by_the_reference(capacities: tuple[int, int]) -> None:
    batches = one_hot(np.random.default_rng(1).integers(0, 40, (20, 4, 1)))
    messages = []
    for planner in (
        NativePlanner(np.asarray([0, 40]), 2, Window(5, 1), *capacities),
        LookaheadPlanner(40, 2, Window(5, 1), *capacities),
    ):
        with pytest.raises(CapacityError) as refusal:
            list(plan_segment(planner, batches))
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
