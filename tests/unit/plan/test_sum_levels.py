"""Levels on which trainers sum: as few messages as can be, and every pair of trainers meets through them."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.sum_levels import TWO_PIECES_FROM_BYTES, messages, share_pieces, sum_levels


@pytest.mark.parametrize(
    ("trainers", "levels"),
    [
        (2, (2,)),
        (3, (3,)),
        (4, (2, 2)),
        (6, (3, 2)),
        (7, (7,)),
        (64, (8, 8)),
        (120, (12, 10)),
        (127, (127,)),
        (128, (8, 4, 4)),
        (134, (67, 2)),
        (256, (8, 8, 4)),
        (512, (8, 8, 8)),
    ],
)
def test_the_levels_of_some_trainers(trainers: int, levels: tuple[int, ...]) -> None:
    assert sum_levels(trainers) == levels


def two_factors(number: int) -> list[tuple[int, int]]:
    return [(factor, number // factor) for factor in range(1, number + 1) if number % factor == 0]


@given(st.integers(2, 2000))
def test_no_other_levels_have_fewer_messages(trainers: int) -> None:
    found = sum_levels(trainers)
    most = 3 if trainers >= 128 else 2
    assert prod(found) == trainers
    assert len(found) <= most
    assert list(found) == sorted(found, reverse=True)
    divisors = [number for number in range(2, trainers + 1) if trainers % number == 0]
    others = [(number, trainers // number) for number in divisors]
    if most == 3:
        others += [(number, *rest) for number in divisors for rest in two_factors(trainers // number)]
    assert messages(found) == min(map(messages, others))


def test_long_shares_travel_in_two_pieces_where_another_level_follows() -> None:
    """Not of fewer bytes, and not on the last level."""
    assert [share_pieces(2, TWO_PIECES_FROM_BYTES - less) for less in (0, 1)] == [2, 1]
    assert share_pieces(3, TWO_PIECES_FROM_BYTES) == 2
    assert share_pieces(1, 100 * TWO_PIECES_FROM_BYTES) == 1
