"""The oracle makes a plan while the one before is on its way."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.roles.oracle import _one_ahead

TIMEOUT_S = 30.0


class Sender:
    """Counts how often plans under way are moved on; lets go of the planner when it has been asked to."""

    def __init__(self) -> None:
        self.advanced = 0
        self.may_plan = threading.Event()

    def advance(self) -> None:
        self.advanced += 1
        self.may_plan.set()


def test_one_plan_is_made_while_another_is_sent() -> None:
    """Plan 1 comes to be while 0 is in hand, and 2 not before 0 is done with."""
    made: list[int] = []
    are_made = [threading.Event() for _ in range(4)]

    def plans() -> Iterator[Any]:
        for number, is_made in enumerate(are_made):
            made.append(number)
            is_made.set()
            yield number

    ahead = _one_ahead(plans(), Sender())  # type: ignore[arg-type]
    for number in range(4):
        assert next(ahead) == number
        if number < 3:
            assert are_made[number + 1].wait(TIMEOUT_S)
        assert made == list(range(min(number + 2, 4)))
    assert next(ahead, None) is None


def test_plans_under_way_move_on_meanwhile() -> None:
    sender = Sender()

    def plans() -> Iterator[Any]:
        assert sender.may_plan.wait(TIMEOUT_S)
        yield "plan"

    assert list(_one_ahead(plans(), sender)) == ["plan"]  # type: ignore[arg-type]
    assert sender.advanced > 0


def test_what_is_wrong_with_a_batch_comes_when_its_plan_is_asked_for() -> None:
    def plans() -> Iterator[Any]:
        yield 0
        raise DataError("row 7 lies outside the tables")

    ahead = _one_ahead(plans(), Sender())  # type: ignore[arg-type]
    assert next(ahead) == 0
    with pytest.raises(DataError, match="row 7"):
        next(ahead)
