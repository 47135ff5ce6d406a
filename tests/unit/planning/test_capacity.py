"""What a window needs is exact, and a cache that is too small for it gets the longest window that fits, or an error."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import dealt_whole
from bagpipe_hpc.planning import capacity
from bagpipe_hpc.planning.capacity import (
    CacheNeed,
    Measure,
    Segments,
    beginning_batches,
    expected_need,
    fit_window,
    measure_need,
    shorter_window,
    tells_by_beginning,
)
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.terminal import counted
from tests.drawing import share_of

ROWS = 400
BUILD = partial(LookaheadPlanner, ROWS, 2)
measure = partial(measure_need, BUILD)


def within(memory_bytes: int) -> Measure:
    """Measures a planner that may take so much memory."""
    return partial(measure, memory_bytes=memory_bytes)


def one_segment(batches: list[np.ndarray]) -> Segments:
    return lambda: iter([map(Bags.one_hot, batches)])


def skewed_trace(seed: int, batches: int = 30) -> list[np.ndarray]:
    return list((ROWS * np.random.default_rng(seed).random((batches, 6, 3)) ** 3).astype(np.int64))


def total_need(batches: list[np.ndarray], window: Window, trainers: int = 2) -> int:
    return measure_need(partial(LookaheadPlanner, ROWS, trainers), window, one_segment(batches)).total_rows


@pytest.mark.parametrize("window", [Window(1, 1), Window(2, 1), Window(5, 2), Window(9, 4), Window(9, 8)], ids=str)
def test_need_of_rows_that_are_used_once(window: Window) -> None:
    """Batch b holds its slots until a batch waits for b's group: counted here batch by batch."""
    alone = [np.arange(4 * b, 4 * b + 4).reshape(4, 1) for b in range(25)]
    both = [np.concatenate((rows[:2], rows[:2])) for rows in alone]
    batches_held = max(
        sum(window.group_that_retires(b) > window.group_before_prefetch(x) for b in range(x + 1)) for x in range(25)
    )
    # Both trainers use both rows of a batch, so they are shared; or each trainer uses two rows of its own.
    assert measure(window, one_segment(both)) == CacheNeed(window, (CacheSlots(2 * batches_held, 0),))
    assert measure(window, one_segment(alone)) == CacheNeed(window, (CacheSlots(0, 2 * batches_held),))


def test_need_is_that_of_the_greediest_segment() -> None:
    small, large = skewed_trace(1, 4), skewed_trace(2, 25)
    window = Window(8, 2)
    together = measure(window, lambda: iter([map(Bags.one_hot, batches) for batches in (small, large, small)]))
    assert together == measure(window, one_segment(large))


@given(st.integers(1, 60), st.data())
def test_a_shorter_window_is_valid_and_in_proportion(lookahead: int, data: st.DataObject) -> None:
    wanted = Window(lookahead, data.draw(st.integers(1, max(1, lookahead - 1))))
    cut = shorter_window(wanted, data.draw(st.integers(1, lookahead)))
    assert 1 <= cut.group <= max(1, cut.lookahead - 1)
    assert cut.group <= max(1, wanted.group * cut.lookahead / wanted.lookahead)
    assert shorter_window(wanted, lookahead) == wanted


@settings(max_examples=share_of(25))
@given(st.integers(0, 2**32), st.integers(2, 24), st.data())
def test_the_window_fits_and_the_next_longer_one_does_not(seed: int, lookahead: int, data: st.DataObject) -> None:
    batches = skewed_trace(seed)
    wanted = Window(lookahead, max(1, lookahead // 4))
    cache_rows = data.draw(st.integers(total_need(batches, Window(1, 1)), total_need(batches, wanted) + 2))
    fitted = fit_window(measure, wanted, one_segment(batches), cache_rows)
    assert fitted == measure(fitted.window, one_segment(batches))
    assert fitted.total_rows <= cache_rows
    if fitted.window != wanted:
        assert fitted.window == shorter_window(wanted, fitted.window.lookahead)
        assert total_need(batches, shorter_window(wanted, fitted.window.lookahead + 1)) > cache_rows


def test_it_is_the_longest_window_where_longer_ones_need_more() -> None:
    """By trying them all, with groups of one batch, whose need grows with the window."""
    batches, wanted = skewed_trace(7), Window(12, 1)
    needs = {lookahead: total_need(batches, shorter_window(wanted, lookahead)) for lookahead in range(1, 13)}
    assert sorted(needs.values()) == list(needs.values())
    for cache_rows in {*needs.values(), *(need + 1 for need in needs.values()), needs[12] - 1}:
        fitted = fit_window(measure, wanted, one_segment(batches), cache_rows)
        assert fitted.window.lookahead == max(lookahead for lookahead, need in needs.items() if need <= cache_rows)


def test_a_planner_that_outgrows_the_memory_is_stopped_while_its_window_fills() -> None:
    batches, wanted = skewed_trace(3), Window(20, 5)
    need = measure(wanted, one_segment(batches))
    assert fit_window(within(need.planner_bytes), wanted, one_segment(batches), 0) == need
    message = r"lookahead\.batches = 20: with (3|5|7|9|11|13|15|17|19) batches read, the planner takes 0\.0 GB, and"
    with pytest.raises(CapacityError, match=message):
        fit_window(within(need.planner_bytes // 2 + 3 * ROWS * 2), wanted, one_segment(batches), 0)


def test_slots_beyond_their_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MOST_SLOTS", 100)
    with pytest.raises(CapacityError, match=r"lookahead\.batches = 20: needs a cache of 1\d\d rows, and slots are"):
        measure(Window(20, 5), one_segment(skewed_trace(3)))


def test_as_many_slots_as_there_are_numbers_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, window = skewed_trace(3), Window(20, 5)
    need = measure(window, one_segment(batches))
    monkeypatch.setattr(capacity, "MOST_SLOTS", need.groups[0].total)
    assert measure(window, one_segment(batches)) == need
    monkeypatch.setattr(capacity, "MOST_SLOTS", need.groups[0].total - 1)
    with pytest.raises(CapacityError, match="slots are numbered up to"):
        measure(window, one_segment(batches))


def test_without_a_limit_the_wanted_window_is_used(caplog: pytest.LogCaptureFixture) -> None:
    batches, wanted = skewed_trace(3), Window(20, 5)
    assert fit_window(measure, wanted, one_segment(batches), cache_rows=0).window == wanted
    assert fit_window(measure, wanted, one_segment(batches), total_need(batches, wanted)).window == wanted
    assert not caplog.records


def test_a_shortened_window_is_told(caplog: pytest.LogCaptureFixture) -> None:
    batches, wanted = skewed_trace(3), Window(20, 5)
    needed = total_need(batches, wanted)
    with caplog.at_level(logging.WARNING):
        fitted = fit_window(measure, wanted, one_segment(batches), needed - 1)
    assert caplog.messages == [
        f"cache.rows = {needed - 1} is too small for lookahead.batches = 20, which needs {needed} rows: "
        f"it is cut to {fitted.window.lookahead} ({fitted.total_rows} rows)"
    ]


@pytest.mark.parametrize("wanted", [Window(1, 1), Window(20, 5)], ids=str)
def test_a_cache_below_one_batch_is_refused_with_the_numbers(wanted: Window) -> None:
    batches = skewed_trace(3)
    single = measure(Window(1, 1), one_segment(batches))
    needed = total_need(batches, wanted)
    message = (
        f"cache.rows = {single.total_rows - 1}: a single batch needs {single.total_rows} rows "
        f"({single.shared_rows} shared, {single.private_rows} private) "
        f"and a window of {counted(wanted.lookahead, 'batch')} {needed}; raise cache.rows or lower train.batch_size"
    )
    with pytest.raises(CapacityError) as refusal:
        fit_window(measure, wanted, one_segment(batches), single.total_rows - 1)
    assert str(refusal.value) == message


def two_more(beginning: Sequence[CacheSlots]) -> Sequence[CacheSlots]:
    return [CacheSlots(slots.shared + 2, slots.private) for slots in beginning]


def test_what_is_expected_is_said_of_what_the_beginning_needs() -> None:
    batches, window = skewed_trace(3), Window(8, 2)
    measured = measure(window, one_segment(batches[:14]))
    told: list[Sequence[CacheSlots]] = []

    def expected(beginning: Sequence[CacheSlots]) -> list[CacheSlots]:
        told.append(beginning)
        return [CacheSlots(70, 80)]

    need = expected_need(measure, window, one_segment(batches[:14]), expected)
    assert not need.is_exact
    assert measured.is_exact
    assert told == [measured.groups]
    assert need.groups == (CacheSlots(70, 80),)
    assert (need.window, need.planner_bytes) == (window, measured.planner_bytes)


def test_needs_are_those_of_the_slices_that_trainers_get() -> None:
    batches, window, start = skewed_trace(1), Window(3, 1), partial(dealt_whole, 2)
    dealt = partial(measure, start_slicing=start)
    need = dealt(window, one_segment(batches))
    assert need.groups != measure(window, one_segment(batches)).groups
    assert expected_need(dealt, window, one_segment(batches), list).groups == need.groups
    fitted = fit_window(dealt, Window(20, 5), one_segment(batches), need.total_rows)
    assert 1 < fitted.window.lookahead < 20
    assert fitted == dealt(fitted.window, one_segment(batches))


def test_a_planner_that_outgrows_the_memory_at_the_beginning_is_stopped() -> None:
    with pytest.raises(CapacityError, match="with 1 batch read, the planner takes"):
        expected_need(within(1), Window(8, 2), one_segment(skewed_trace(3)), two_more)


@settings(max_examples=share_of(25))
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 3))
def test_a_pool_never_has_more_slots_in_use_than_there_are_rows(seed: int, rows: int, trainers: int) -> None:
    batches = list((rows * np.random.default_rng(seed).random((40, 6, 3)) ** 2).astype(np.int64))
    need = measure_need(partial(LookaheadPlanner, rows, trainers), Window(9, 2), one_segment(batches))
    assert max(need.shared_rows, need.private_rows) <= rows


@pytest.mark.parametrize("asked", ["nothing", "enough", "too few"])
def test_all_batches_are_read_only_where_the_cache_has_fewer_rows_than_expected(asked: str) -> None:
    batches, wanted = skewed_trace(3), Window(20, 5)
    passes: list[str] = []

    def segments() -> Iterator[Iterable[Bags]]:
        passes.append("all")
        return one_segment(batches)()

    def expected() -> CacheNeed:
        passes.append("beginning")
        return expected_need(measure, wanted, one_segment(batches), two_more)

    need = expected()
    cache_rows = {"nothing": 0, "enough": need.total_rows, "too few": need.total_rows - 1}[asked]
    passes.clear()
    fitted = fit_window(measure, wanted, segments, cache_rows, expected=expected)
    if asked == "too few":
        assert passes == ["beginning", "all"]  # which finds that no more is needed
        assert fitted == measure(wanted, one_segment(batches))
    else:
        assert passes == ["beginning"]
        assert fitted == need


def test_slots_beyond_their_numbers_are_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, window = skewed_trace(3), Window(20, 5)
    measured = measure(window, one_segment(batches)).total_rows
    monkeypatch.setattr(capacity, "MOST_SLOTS", measured + 1)
    with pytest.raises(CapacityError, match=r"lookahead\.batches = 20: needs a cache of 1\d\d rows, and slots are"):
        expected_need(measure, window, one_segment(batches), two_more)


@pytest.mark.parametrize(
    ("window", "batches", "tells"),
    [
        (Window(1, 1), 100, False),
        (Window(40, 10), 100, True),
        (Window(200, 50), 300, True),
        (Window(9, 5), 100, False),
        (Window(8, 4), 100, True),
    ],
)
def test_how_long_a_beginning_is(window: Window, batches: int, tells: bool) -> None:
    assert beginning_batches(window) == batches
    assert tells_by_beginning(window) == tells


def of_homes(first: CacheSlots, *others: CacheSlots) -> CacheNeed:
    return CacheNeed(Window(4, 1), (first, *others), is_exact=False)


def test_reserved_slots_are_not_counted_among_those_that_are_held() -> None:
    need = of_homes(CacheSlots(100, 20, 60), CacheSlots(10, 7, 6))
    assert (need.shared_rows, need.private_rows, need.total_rows, need.reserved_rows) == (44, 27, 71, 66)


def test_where_nothing_can_be_reserved_slots_of_copies_are_doubled() -> None:
    """But are no more than could be used."""
    need = of_homes(CacheSlots(100, 20, 60), CacheSlots(10, 7, 2))
    assert need.in_memory().groups == (CacheSlots(80, 20), CacheSlots(10, 7))


@pytest.mark.parametrize(
    ("cache_rows", "reserved"), [(71, (0, 0)), (82, (10, 0)), (84, (10, 0)), (104, (30, 2)), (999, (60, 6))]
)
def test_the_cache_never_has_more_rows_than_it_may_have(cache_rows: int, reserved: tuple[int, int]) -> None:
    need = of_homes(CacheSlots(100, 20, 60), CacheSlots(10, 7, 6))
    fitted = fit_window(measure, need.window, one_segment([]), cache_rows, expected=lambda: need)
    assert tuple(group.reserved for group in fitted.groups) == reserved
    assert fitted.total_rows == 71
    assert fitted.total_rows + fitted.reserved_rows <= cache_rows
