"""Sums at a home are those of trainer after trainer, from zero, also where earlier hosts have begun them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.plan.exchange import Summed
from bagpipe_hpc.step.sharing.home_sums import HomeGradients, HomeSums, HomeTotal

GRADIENTS = torch.tensor([[1e8], [7.0], [1.0], [-1e8], [1.0], [5.0]])
"""Two of the first trainer, three of the second, one of the last; in float32 1e8 + 1 is 1e8."""
SOURCES = np.asarray([2, 3, 1])
PLACES = np.asarray([0, 1, 0, 0, 2, 1], np.int32)
"""The second trainer has two of the first row, which are added one by one."""
NOBODY: Any = None


def sum_gradients(gradients: Tensor, places: Tensor, rows: int) -> Tensor:
    sums = torch.zeros(rows, gradients.shape[1])
    for gradient, place in zip(gradients, places.tolist(), strict=True):
        sums[place] += gradient
    return sums


def sums_of(trainer: int = 1) -> HomeSums:
    cache: Any = SimpleNamespace(device=Cpu(), width=1, sum_gradients=sum_gradients)
    return HomeSums([cache], trainer, 3, None)


def coming_to(trainer: int, hosted: int = 0) -> HomeGradients:
    """All gradients; those of this trainer are not among what has come."""
    first = int(SOURCES[:trainer].sum())
    own = slice(first, first + int(SOURCES[trainer]))
    rows = GRADIENTS.numpy().copy()
    rows[own] = np.nan
    summed = Summed(np.asarray([4, 9, 2], np.int32), PLACES, SOURCES, hosted)
    arrival: Any = SimpleNamespace(rows=rows)
    return HomeGradients(0, summed, 3, GRADIENTS[own], arrival)


@pytest.mark.parametrize("trainer", range(3))
def test_gradients_of_a_home_stand_between_those_that_come(trainer: int) -> None:
    sums = sums_of(trainer)
    total = sums.begin(coming_to(trainer), NOBODY)
    assert total.is_complete()
    assert total.slots.tolist() == [4, 9, 2]
    assert sums.of(total)[:, 0].tolist() == [0.0, 12.0, 1.0]


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [(None, [0.0, 12.0]), ([[-1e8], [3.0]], [-1e8, 15.0])],
    ids=["first host", "second host"],
)
def test_what_earlier_hosts_have_is_added_first(earlier: list[list[float]] | None, expected: list[float]) -> None:
    """-1e8 + 1e8 + 1 - 1e8 is 1 - 1e8, which is -1e8 in float32. The total of all hosts takes its place."""
    added: list[np.ndarray] = []
    over_hosts: Any = SimpleNamespace(total=np.asarray([[21.0], [22.0]], np.float32))

    def start(of_host: int, shape: tuple[int, int], add: Callable[[np.ndarray | None], np.ndarray]) -> Any:
        assert (of_host, shape) == (3, (2, 1))
        added.append(add(None if earlier is None else np.asarray(earlier, np.float32)))
        return over_hosts

    sums, chain = sums_of(), SimpleNamespace(start=start)
    total = sums.begin(coming_to(1, hosted=2), chain)  # type: ignore[arg-type]
    assert added[0][:, 0].tolist() == expected
    assert (total.group, total.slots.tolist(), total.over_hosts) == (0, [4, 9, 2], over_hosts)
    assert sums.of(total)[:, 0].tolist() == [21.0, 22.0, 1.0], "the last row is not held once a host"


@pytest.mark.parametrize("trainers", [2, 3])
def test_the_total_of_three_trainers_is_rounded_once_more(trainers: int) -> None:
    """As a replicated sum is, which travels again from three trainers on."""
    short = short_floats("bfloat16", 64)
    assert short is not None
    cache: Any = SimpleNamespace(device=Cpu())
    value = torch.full((1, 1), 1 / 3)
    total = HomeTotal(0, torch.zeros(1), [value], None)
    expected = short.rounded(value) if trainers == 3 else value
    assert not torch.equal(short.rounded(value), value)
    assert torch.equal(HomeSums([cache], 0, trainers, short).of(total), expected)
