"""The window's arithmetic against the sentences that define it, by search."""

import pytest

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.batch_plan import NO_GROUP
from bagpipe_hpc.planning.window import Window

BATCHES = range(60)
WINDOWS = [Window(1, 1), *(Window(lookahead, group) for lookahead in range(2, 11) for group in range(1, lookahead))]

for_all_windows = pytest.mark.parametrize("window", WINDOWS, ids=str)


@pytest.mark.parametrize(("lookahead", "group"), [(0, 0), (0, 1), (4, 0), (4, 4), (4, 5), (-1, 1)])
def test_a_window_that_cannot_be_is_refused(lookahead: int, group: int) -> None:
    with pytest.raises(PlanError, match=f"a window of {lookahead} batches in groups of {group}: use 1 batch or more"):
        Window(lookahead, group)


def groups(window: Window) -> range:
    """Numbers of all groups: multiples of C."""
    return range(window.group, 200, window.group)


@for_all_windows
def test_a_row_leaves_with_the_first_group_above_its_last_use(window: Window) -> None:
    for batch in BATCHES:
        assert window.group_that_retires(batch) == min(c for c in groups(window) if c > batch)


@for_all_windows
def test_a_batch_is_fetched_after_the_first_group_within_a_window_of_it(window: Window) -> None:
    """`b < c + L`; the batches of the first window wait for nothing."""
    for batch in BATCHES:
        wanted = min(c for c in (NO_GROUP, *groups(window)) if batch < c + window.lookahead)
        assert window.group_before_prefetch(batch) == wanted


@for_all_windows
def test_whoever_may_be_fetched_was_written_back(window: Window) -> None:
    """A row absent at b was last used at b - L or earlier: its group is retired before b is fetched."""
    for batch in BATCHES[window.lookahead :]:
        assert window.group_that_retires(batch - window.lookahead) <= window.group_before_prefetch(batch)


@for_all_windows
def test_every_group_starts_once_with_its_updates_applied(window: Window) -> None:
    """Write-backs of c start after batch c, when delayed updates of c - 1 are in; without look-ahead after c - 1."""
    started = {window.group_started_by(batch): batch for batch in BATCHES}
    started.pop(NO_GROUP, None)
    delay = 0 if window.lookahead == 1 else 1
    assert started == {c: c - 1 + delay for c in groups(window) if c - 1 + delay in BATCHES}


@for_all_windows
def test_training_never_waits_for_itself(window: Window) -> None:
    """The group that a batch waits for is started by a batch before it."""
    for batch in BATCHES:
        group = window.group_before_prefetch(batch)
        assert group == NO_GROUP or group in {window.group_started_by(earlier) for earlier in range(batch)}


@for_all_windows
def test_the_closing_plan_has_the_groups_that_no_batch_has_started(window: Window) -> None:
    for batches in range(40):
        retired = {window.group_that_retires(batch) for batch in range(batches)}
        started = {window.group_started_by(batch) for batch in range(batches)}
        assert window.closing_group(batches) == max(retired - started, default=NO_GROUP)


@pytest.mark.parametrize("lookahead", [1, 2, 5])
def test_a_serial_window_ends_each_batch_before_the_next_one_is_fetched(lookahead: int) -> None:
    """Whatever it has in view, its groups are those of a window of one batch."""
    window, alone = Window(lookahead, 1, serial=True), Window(1, 1)
    for batch in BATCHES:
        assert window.group_before_prefetch(batch) == window.latest_before_prefetch(batch) == batch
        assert window.group_that_retires(batch) == window.group_that_leaves(batch) == window.group_started_by(batch)
        for rule in ("group_that_retires", "group_that_leaves", "group_started_by", "closing_group"):
            assert getattr(window, rule)(batch) == getattr(alone, rule)(batch)
