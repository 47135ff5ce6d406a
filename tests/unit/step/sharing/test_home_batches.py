"""What is waited for of a batch: of its later gradients all of them first, then each sum over hosts; all its copies."""

from types import SimpleNamespace
from typing import Any

import torch

from bagpipe_hpc.step.sharing.home_batches import LaterGradients, RestOfCopies, are_complete
from bagpipe_hpc.step.sharing.home_sums import HomeTotal

HERE = HomeTotal(0, torch.empty(0), [], None)


def total_over_hosts(asked: list[str], name: str, *, complete: bool) -> HomeTotal:
    def is_complete() -> bool:
        asked.append(name)
        return complete

    chained: Any = SimpleNamespace(is_complete=is_complete, awaited=lambda: [f"messages of {name}"])
    return HomeTotal(1, torch.empty(0), [], chained)


def test_a_sum_of_one_host_waits_for_nothing() -> None:
    assert HERE.is_complete()
    assert HERE.awaited() == []


def test_sums_over_hosts_are_all_asked_and_awaited() -> None:
    """Each is moved on when it is asked, so one that is not complete keeps none from being asked."""
    asked: list[str] = []
    totals = [HERE, *(total_over_hosts(asked, name, complete=name == "b") for name in ("a", "b"))]
    assert not are_complete(totals)
    assert asked == ["a", "b"]
    assert LaterGradients(0, 1, [], totals).awaited() == ["messages of a", "messages of b"]
    assert are_complete([HERE, totals[2]])


def test_the_rest_of_the_copies_has_come_when_those_of_all_groups_have() -> None:
    here, missing = (SimpleNamespace(is_complete=lambda own=own: own) for own in (True, False))
    rest: Any = RestOfCopies(0, [])
    assert not rest.has_come(), "they have not left"
    rest.arrivals = [here, missing]
    assert not rest.has_come()
    rest.arrivals = [here, here]
    assert rest.has_come()
