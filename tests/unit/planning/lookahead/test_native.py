"""The native planner gives the reference's plans, byte for byte, for any number of threads and any kind of state."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange_grid import EXCHANGES, Grid, choose_grid
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.planner_threads import ThreadShares
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.partition import table_offsets
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import bags_of, bags_of_lists, drawn_lengths

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
    feature_tables: tuple[int, ...]
    segments: list[Segment]
    trainers: int
    window: Window
    verify: bool
    with_homes: bool = False
    exchange: str = "direct"

    @property
    def homes(self) -> Grid | None:
        """Over which trainers rows with one home travel."""
        return choose_grid(self.exchange, self.trainers).grid if self.with_homes else None


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Batches of up to some blocks of the native planner; skewed or not, one-hot or ragged; replicated or with homes.

    Features have a table each, or share tables as it happens, so that some tables may have none.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    features, tables = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    feature_tables = tuple(draw(st.sampled_from([range(features), rng.integers(0, tables, features).tolist()])))
    table_rows = rng.integers(1, draw(st.sampled_from([3, 60, 700])), max(features, tables), endpoint=True)
    offsets = table_offsets(table_rows.tolist())
    firsts, sizes = offsets[list(feature_tables)], table_rows[list(feature_tables)]
    trainers = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 20, 40]))
    lookahead = draw(st.integers(1, 8))
    window = Window(lookahead, draw(st.integers(1, max(1, lookahead - 1))))
    segments: list[Segment] = []
    step = 0
    for _ in range(draw(st.integers(1, 3))):
        count, samples = draw(st.integers(0, 15)), draw(st.sampled_from([1, 2, 9, 130, 300]))
        most = draw(st.sampled_from([0, 0, 1, 3, 40]))
        skew = draw(st.sampled_from([1, 4]))
        batches = []
        for _ in range(count):
            skewed = rng.random((samples, max(1, most), features)) ** skew
            rows = ((skewed * sizes).astype(np.int64) + firsts).transpose(0, 2, 1)
            batches.append(bags_of(rows, drawn_lengths(rng, samples, features, most)))
        training = draw(st.booleans())
        segments.append(Segment(batches, training, step))
        step += count if training else 0
    homes = draw(st.booleans()), draw(st.sampled_from(EXCHANGES[1:]))
    return Run(offsets, feature_tables, segments, trainers, window, draw(st.booleans()), *homes)


def one_hot(batches: Iterable[np.ndarray]) -> list[Bags]:
    """Batches of global rows `[n, F]`."""
    return list(map(Bags.one_hot, batches))


def reference(run: Run, *capacities: int) -> LookaheadPlanner:
    return (partial(HomePlanner, grid=run.homes) if run.with_homes else LookaheadPlanner)(
        int(run.offsets[-1]),
        run.trainers,
        run.window,
        *capacities,
        verify=run.verify,
        feature_tables=run.feature_tables,
    )


def native_planner(run: Run, *capacities: int, **arguments: Any) -> NativePlanner:
    return NativePlanner(
        run.offsets,
        run.trainers,
        run.window,
        *capacities,
        verify=run.verify,
        feature_tables=run.feature_tables,
        homes=run.homes,
        **arguments,
    )


def plans(planner: Planner, run: Run) -> Iterable[BatchPlan]:
    for segment in run.segments:
        yield from plan_segment(planner, segment.batches, training=segment.training, first_step=segment.first_step)


def assert_same_plans(found: Iterable[BatchPlan], expected: Iterable[BatchPlan]) -> None:
    for plan, wanted in zip_longest(found, expected):
        for record, wanted_record in zip((plan.shared, *plan.trainers), (wanted.shared, *wanted.trainers), strict=True):
            assert record.encode().tobytes() == wanted_record.encode().tobytes(), (record, wanted_record)


@st.composite
def teams(draw: st.DrawFn, run: Run) -> ThreadShares:
    """Threads that decide, and perhaps others that load, and others that write plans."""
    loading, deciding = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    writing = draw(st.integers(0, 3)) if run.with_homes and not run.verify else 0
    return ThreadShares(deciding + loading + writing, loading, writing)


@settings(max_examples=share_of(150), deadline=None)
@given(runs(), st.data())
def test_plans_are_the_references(run: Run, data: st.DataObject) -> None:
    """Also where some of the threads load a batch while others decide on one, and others write the plans before it."""
    tables = run.offsets.size - 1
    sparse = np.asarray(data.draw(st.lists(st.booleans(), min_size=tables, max_size=tables)))
    native = native_planner(run, sparse=sparse, threads=data.draw(teams(run)))
    sound = reference(run)
    assert_same_plans(plans(native, run), plans(sound, run))
    assert native.size().shared_slots == sound.size().shared_slots
    assert native.size().private_slots == sound.size().private_slots


@settings(max_examples=share_of(40), deadline=None)
@given(runs(), st.booleans())
def test_any_number_of_features_share_a_single_table(run: Run, sparse: bool) -> None:
    whole = np.asarray([0, run.offsets[-1]])
    native = native_planner(
        replace(run, offsets=whole, feature_tables=()), sparse=np.asarray([sparse]), threads=ThreadShares(2)
    )
    assert_same_plans(plans(native, run), plans(reference(replace(run, feature_tables=())), run))


@settings(max_examples=share_of(30), deadline=None)
@given(runs())
def test_measuring_finds_the_slots_that_planning_takes(run: Run) -> None:
    measuring = native_planner(run)
    for segment in run.segments:
        measure_segment(measuring, segment.batches)
    size = measuring.size()
    capacities = (size.shared_slots, size.private_slots)
    assert_same_plans(plans(native_planner(run, *capacities), run), plans(reference(run, *capacities), run))


@pytest.mark.parametrize("with_homes", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_without_samples_has_no_rows(sparse: bool, threads: int, with_homes: bool) -> None:
    nothing, row = one_hot([np.zeros((0, 2), dtype=np.int64), np.asarray([[4, 5]])])
    states = np.asarray([sparse, sparse])
    run = Run(np.asarray([0, 5, 6]), (0, 1), [], 2, Window(3, 1), verify=True, with_homes=with_homes)
    planner = native_planner(run, sparse=states, threads=ThreadShares(threads))
    fetched = [
        plan.shared.fetch_rows.size + sum(part.fetch_rows.size for part in plan.trainers)
        for plan in plan_segment(planner, [nothing, row, nothing, row, nothing, nothing, row])
    ]
    assert fetched[:7] == [0, 2, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("with_homes", [False, True])
@pytest.mark.parametrize("longest", [0, 200])
def test_more_rows_in_a_batch_than_sixteen_bits_can_name(longest: int, with_homes: bool) -> None:
    """Some 93,000 of 140,000 look-ups, or 66,600 of 80,000, in one-hot samples or in long bags."""
    rng = np.random.default_rng(4)
    samples = 700 if longest else 70_001
    rows = rng.integers(0, 200_000, (3, samples, 2, max(1, longest)))
    batches = [bags_of(part, rng.integers(90, 110, (samples, 2)) if longest else None) for part in rows]
    assert np.unique(batches[0].values).size > 1 << 16
    offsets = np.asarray([0, 200_000])
    run = Run(offsets, (0, 0), [Segment(batches, True, 0)], 3, Window(3, 2), verify=False, with_homes=with_homes)
    assert_same_plans(plans(native_planner(run, threads=ThreadShares(2)), run), plans(reference(run), run))


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


@pytest.mark.parametrize("row", [-1, 4, 10, 2**40, 2**63 - 1, -(2**63)])
def test_a_row_of_another_table_is_named(row: int) -> None:
    """The first in the order of the samples, whichever thread finds another one sooner."""
    rows = np.tile([1, 5], (300, 1))
    rows[200, 0] = rows[250, 1] = rows[201, 0] = row
    planner = NativePlanner(np.asarray([0, 4, 10]), 2, Window(2, 1), threads=ThreadShares(2))
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


def test_a_row_outlives_batches_without_any() -> None:
    """The first row's place is free again while batches without rows lie between it and the second one."""
    batches = [bags_of_lists([[rows, [], []]]) for rows in ([4], [], [], [], [5], [], [3])]
    run = Run(np.asarray([0, 6]), (0, 0, 0), [Segment(batches, True, 0)], 1, Window(4, 3), verify=False)
    assert_same_plans(plans(native_planner(run), run), plans(reference(run), run))


@pytest.mark.parametrize("row", [-1, 2**40, 2**62, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("first_table", [5_000, 2**32])
def test_any_number_that_is_no_row_is_named(row: int, length: int, sparse: bool, first_table: int) -> None:
    """Also beside tables of more rows than 32 bits number."""
    ends = np.asarray([first_table, first_table + 5_000])
    rows = np.tile(np.repeat(ends - 2, length), (200, 1))
    rows[150, length:] = row
    lengths = np.full((200, 2), length)
    batch = Bags.one_hot(rows) if length == 1 else Bags.ragged(rows.reshape(-1), lengths)
    planner = NativePlanner(np.asarray([0, *ends]), 2, Window(2, 1), sparse=np.asarray([first_table > 2**31, sparse]))
    with pytest.raises(DataError, match=rf"row {row} of sample 150, feature 1.*has rows {ends[0]} to below {ends[1]}"):
        planner.load(batch)


def test_a_feature_of_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"feature_tables \(0, 2\): there are 2 tables, from 0"):
        NativePlanner(np.asarray([0, 4, 10]), 2, Window(2, 1), feature_tables=(0, 2))


@pytest.mark.parametrize(
    ("settings_of", "words"),
    [
        ({"verify": True}, "with verify a plan needs the versions"),
        ({"homes": None}, "of replicated rows the lists of one batch alone"),
    ],
)
def test_plans_that_others_cannot_write_are_refused(settings_of: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NativePlanner(
            np.asarray([0, 4]), 2, Window(2, 1), threads=ThreadShares(2, 0, 1), **{"homes": Grid(1, 2), **settings_of}
        )


@pytest.mark.parametrize("with_homes", [False, True])
@pytest.mark.parametrize(("threads", "loading"), [(1, 0), (3, 0), (4, 2)])
def test_the_times_of_threads_add_up(threads: int, loading: int, with_homes: bool) -> None:
    """To no more than the process took, of which the calling thread took its part."""
    batches = one_hot(np.random.default_rng(1).integers(0, 5000, (6, 3000, 1)))
    run = Run(np.asarray([0, 5000]), (0,), [Segment(batches, True, 0)], 3, Window(2, 1), False, with_homes)
    planner = native_planner(run, threads=ThreadShares(threads, loading))
    calling, process = time.thread_time(), time.process_time()
    list(plans(planner, run))
    calling, process = time.thread_time() - calling, time.process_time() - process
    times, loading_times = planner.times(), planner.times(loading=True)
    for team, size in ((times, threads - loading), (loading_times, loading)):
        assert team.rounds >= 2 * len(batches) * (size > 0)
        assert team.first_s <= team.slowest_s <= team.all_s <= size * team.slowest_s
        if size == 1:
            assert 0 < team.first_s == team.slowest_s == team.all_s
    assert times.first_s <= calling
    assert times.all_s + loading_times.all_s <= process + 1e-3


@pytest.mark.parametrize(("trainers", "rows"), [(4, 900), (8, 900), (20, 60), (70, 900)])
@pytest.mark.parametrize("skew", [1, 8])
def test_homes_of_rows_that_many_trainers_use(trainers: int, rows: int, skew: int) -> None:
    """Rows of one user and of all of them, in batches that several threads share out within a table.

    20 trainers have many popular rows, of some more users or less.
    """
    rng = np.random.default_rng(6)
    batches = one_hot((rng.random((12, 1200, 2)) ** skew * rows).astype(np.int64) + np.asarray([0, rows]))
    segments = [Segment(batches, True, 0), Segment(batches[:5], False, 12)]
    run = Run(np.asarray([0, rows, 2 * rows]), (0, 1), segments, trainers, Window(4, 2), verify=True, with_homes=True)
    expected = list(plans(reference(run), run))
    for threads, loading in ((1, 0), (5, 0), (5, 2)):
        native = native_planner(run, threads=ThreadShares(threads, loading))
        assert_same_plans(plans(native, run), expected)


def test_a_user_of_a_row_in_two_features_is_one_user() -> None:
    """By hand: trainer 1 looks row 7 up in both features, trainer 0 in the second one; they take rows in turn."""
    batches = [Bags.one_hot(np.asarray([[1, 7], [7, 7]])), Bags.one_hot(np.asarray([[2, 7], [7, 3]]))]
    run = Run(np.asarray([0, 9]), (0, 0), [Segment(batches, True, 0)], 2, Window(2, 1), verify=False, with_homes=True)
    first, second, _ = plans(native_planner(run), run)
    assert [part.fetch_rows.tolist() for part in first.trainers] == [[1], [7]]
    assert [part.positions.tolist() for part in first.trainers] == [[1, 0], [0, 0]]
    counts = [part.exchanged.counts for part in first.trainers if part.exchanged]
    assert [own.now_to.tolist() for own in counts] == [[0, 1], [0, 0]]
    assert [own.now_from.tolist() for own in counts] == [[0, 0], [1, 1]]
    assert [own.next_to.tolist() for own in counts] == [[0, 0], [1, 0]]
    assert [part.fetch_rows.tolist() for part in second.trainers] == [[2], [3]]


@pytest.mark.parametrize(
    ("with_homes", "capacities"),
    [(False, (3, 100)), (False, (100, 2)), (True, (3, 100)), (True, (100, 5))],
)
def test_used_up_slots_are_reported_as_by_the_reference(with_homes: bool, capacities: tuple[int, int]) -> None:
    """With homes copies have an even number of the shared slots."""
    batches = one_hot(np.random.default_rng(1).integers(0, 40, (20, 4, 1)))
    run = Run(np.asarray([0, 40]), (0,), [Segment(batches, True, 0)], 2, Window(5, 1), False, with_homes)
    messages = []
    for planner in (native_planner(run, *capacities), reference(run, *capacities)):
        with pytest.raises(CapacityError) as refusal:
            list(plan_segment(planner, batches))
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
