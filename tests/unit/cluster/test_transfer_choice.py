"""All ranks take the way between hosts that was faster for the slowest trainer; messages where it hardly matters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cluster.transfer_choice import Trial, choose_transfers
from bagpipe_hpc.errors import ConsistencyError

SECONDS = st.floats(1e-6, 10.0)
TRIALS = st.lists(st.fixed_dictionaries({"messages": SECONDS, "one_sided": SECONDS}), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("trials", "way"),
    [
        ([{"messages": 2e-3, "one_sided": 1e-3}], "one_sided"),
        ([{"messages": 1e-3, "one_sided": 2e-3}], "messages"),
        ([{"messages": 1e-3, "one_sided": 0.95e-3}], "messages"),  # may be noise
        ([{"messages": 2e-3, "one_sided": 1e-3}, {"messages": 2e-3, "one_sided": 9e-3}], "messages"),
        ([{"messages": 1e-3, "one_sided": 2e-3}, {"messages": 9e-3, "one_sided": 2e-3}], "one_sided"),
        ([{"messages": 2e-3, "one_sided": 1e-3}, {"messages": 2e-3, "one_sided": math.inf}], "messages"),
    ],
)
def test_the_slowest_trainer_decides(trials: list[Trial], way: str) -> None:
    """A choice of the slower way, or by the fastest trainer, fails here."""
    assert choose_transfers(trials, 1000, 64).way == way


@given(TRIALS)
def test_the_chosen_way_is_never_much_slower_than_the_other(trials: list[Trial]) -> None:
    slowest = {way: max(trial[way] for trial in trials) for way in ("messages", "one_sided")}
    way = choose_transfers(trials, 1000, 64).way
    assert slowest[way] <= min(slowest.values()) / 0.9 * (1 + 1e-9)
    assert way == choose_transfers(trials[::-1], 1000, 64).way


def test_the_log_says_both_figures() -> None:
    choice = choose_transfers([{"messages": 1e-3, "one_sided": 4e-3}], 1000, 64)
    assert str(choice) == (
        "rows between hosts travel by messages (roles.transfers = auto: 1000 rows of 64 bytes there and back, "
        "messages 1 ms or 128 MB/s, one-sided calls 4 ms or 32 MB/s)"
    )


def test_one_sided_calls_that_were_not_tried_are_not_chosen() -> None:
    choice = choose_transfers([{"messages": 1.0}, {"messages": 2.0}], 1000, 64)
    assert choice.way == "messages"
    assert "this MPI lacks the unified memory model" in str(choice)


def test_the_log_says_that_one_sided_calls_are_wrong() -> None:
    choice = choose_transfers([{"messages": 1e-3, "one_sided": math.inf}], 1000, 64)
    assert "one-sided calls gave back other numbers than were put" in str(choice)


@pytest.mark.parametrize("one_sided", [1e-3, math.inf])
def test_wrong_messages_end_the_run(one_sided: float) -> None:
    """Plans are messages, too."""
    with pytest.raises(ConsistencyError, match="messages between hosts gave back other numbers"):
        choose_transfers([{"messages": math.inf, "one_sided": one_sided}], 1000, 64)
