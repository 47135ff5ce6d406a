"""The board knows which pieces are wanted still, gives each piece out once, and lets ranks meet."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.ranks.board import NO_LIMIT, Board, Meet, Stage, Take, Tell


def board(allowed: int = NO_LIMIT, bad: dict[int, int] | None = None) -> Board:
    made = Board(lambda _: None)
    made.begin(Stage("parsed", 100, allowed=allowed, bad=bad or {}))
    return made


def test_each_number_is_given_to_one_rank() -> None:
    shared = board()
    assert [shared.answer(rank, Take()) for rank in (0, 2, 1, 2)] == [0, 1, 2, 3]
    shared.begin(Stage("counted", 9))
    assert shared.answer(1, Take()) == 0


def test_ranks_meet_once_all_have_come_and_maybe_ask_more_often() -> None:
    shared = board()
    assert shared.answer(1, Meet(1, 3, "b")) is None
    assert shared.answer(1, Meet(1, 3, "b")) is None
    assert shared.answer(0, Meet(1, 3, "a")) is None
    for rank, value in ((2, "c"), (1, "b"), (0, "a")):
        assert shared.answer(rank, Meet(1, 3, value)) == ["a", "b", "c"]
        if rank == 1:
            assert shared.answer(2, Meet(2, 3, "later")) is None


@given(
    st.dictionaries(st.integers(0, 20), st.integers(1, 4)),
    st.integers(0, 6),
    st.none() | st.integers(0, 20),
    st.randoms(),
)
def test_what_lies_behind_the_end_of_a_preparation_is_not_wanted(
    bad: dict[int, int], allowed: int, failed: int | None, order: Callable[..., None]
) -> None:
    """The end is the row that is one too many, or a failure; by the order of the input, whoever tells it when."""
    shared = board(allowed)
    told = [Tell(piece=piece, bad=found) for piece, found in bad.items()]
    told += [] if failed is None else [Tell(piece=failed, failed=True)]
    order.shuffle(told)  # type: ignore[attr-defined]
    for tell in told:
        shared.answer(0, tell)
    rows = [piece for piece in sorted(bad) for _ in range(bad[piece])]
    ends = [rows[allowed]] if len(rows) > allowed else []
    ends += [] if failed is None else [failed]
    assert shared.answer(1, Tell()) == min(ends, default=NO_LIMIT) + 1


def test_rows_of_earlier_runs_count() -> None:
    assert board(allowed=1, bad={4: 1}).answer(0, Tell(piece=7, bad=1)) == 8
    assert board(allowed=1, bad={4: 1}).answer(0, Tell(piece=2, bad=1)) == 5


@pytest.mark.parametrize("piece", [None, 3])
def test_a_failure_of_all_stops_all(piece: int | None) -> None:
    assert board().answer(0, Tell(piece=piece, failed=True)) == (0 if piece is None else 4)
