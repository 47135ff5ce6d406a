"""Groups of dense gradients are summed one after the other, whichever the backward pass finishes first."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.models.sums.reduction import DenseReducer
from bagpipe_hpc.mpi.waiting import Haste, Waits


def nobody() -> None:
    """Nothing is watched, and nobody is rung for."""


@dataclass
class Doubled:
    """A sum with a trainer that has the same gradients; it takes some tests."""

    gradients: Tensor
    tests_left: int = 3

    def is_complete(self) -> bool:
        self.tests_left -= 1
        return self.tests_left <= 0

    def finish(self) -> None:
        assert self.tests_left <= 0, "nobody has seen that it is complete"
        self.gradients *= 2


@dataclass
class TwoAlike:
    """`DenseSums` of two trainers with the same gradients."""

    trainers: int = 2
    started: list[tuple[int, int]] = field(default_factory=list)
    is_moving: bool = False
    goes_on_behind: list[Any] | None = field(default_factory=list)

    def sums_on(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def start(self, group: int, gradients: Tensor) -> Doubled:
        self.started.append((group, gradients.numel()))
        return Doubled(gradients)

    def advance(self) -> bool:
        return self.is_moving

    def awaited(self) -> list[Any] | None:
        return self.goes_on_behind

    def close(self) -> None:
        pass


@pytest.mark.parametrize("finished", [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]])
def test_groups_start_in_order(finished: list[int]) -> None:
    weights = [nn.Parameter(torch.zeros(size)) for size in (3, 1, 2)]
    sums = TwoAlike()
    reducer = DenseReducer([[weight] for weight in weights], sums, waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
    for step in range(2):
        for number in finished:
            weights[number].grad = None
            (weights[number].sum() * (number + 1)).backward()
        assert sums.started[3 * step :] == [(0, 3), (1, 1), (2, 2)]
        reducer.wait()
        for number, weight in enumerate(weights):
            assert weight.grad is not None
            assert (weight.grad == 2 * (number + 1)).all()


def test_a_group_starts_as_soon_as_it_is_there() -> None:
    weights = [nn.Parameter(torch.zeros(size)) for size in (3, 1)]
    sums = TwoAlike()
    DenseReducer([[weight] for weight in weights], sums, waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
    weights[0].sum().backward()
    assert sums.started == [(0, 3)]


@pytest.mark.parametrize(
    ("is_moving", "awaited", "haste"),
    [(True, [], Haste.SOON), (False, None, Haste.CALM), (False, [[]], Haste.CALM), (False, [], Haste.NONE)],
)
def test_each_group_rings_for_who_moves_sums_on(*, is_moving: bool, awaited: list[Any] | None, haste: Haste) -> None:
    """Unless nobody has to; who is to come again until the sums were waited for, and learns what they go on behind.

    Whoever is rung for finds that there is something: it may ask before the ring returns.
    """
    weights = [nn.Parameter(torch.zeros(size)) for size in (3, 1)]
    sums, rung = TwoAlike(), list[int]()

    def ring() -> None:
        rung.append(len(sums.started))
        assert (reducer.advance(), reducer.awaited()) == (haste, awaited)

    each = [[weight] for weight in weights]
    reducer = DenseReducer(each, sums, waits=Waits(30.0, nobody), device=Cpu(), ring=ring)
    sums.goes_on_behind = awaited
    rings = [1, 2, 3, 4] if awaited != [] else []
    for done in range(2):
        sums.is_moving = False
        assert (reducer.advance(), reducer.awaited()) == (Haste.NONE, [])
        sums.is_moving = is_moving
        for weight in weights:
            weight.grad = None
            weight.sum().backward()
            assert (reducer.advance(), reducer.awaited()) == (haste, awaited)
        assert rung == rings[: 2 * done + 2]
        reducer.wait()


def test_a_single_trainer_starts_nothing() -> None:
    weight = nn.Parameter(torch.zeros(3))
    sums = TwoAlike(trainers=1)
    reducer = DenseReducer([[weight]], sums, waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
    weight.sum().backward()
    reducer.wait()
    assert not sums.started
    assert weight.grad is not None
    assert (weight.grad == 1).all()


def in_turn(weight: nn.Parameter) -> None:
    for _ in range(2):
        weight.sum().backward()


def one_within_the_other(weight: nn.Parameter) -> None:
    inputs = torch.ones(2, requires_grad=True)
    parts = (checkpoint(lambda own: (own * weight).sum(), inputs, use_reentrant=True) for _ in range(2))
    sum(parts).backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("passes", [in_turn, one_within_the_other])
def test_a_gradient_that_comes_twice_is_refused(passes: Callable[[nn.Parameter], None]) -> None:
    """The sum over the trainers has begun with what came first."""
    weight = nn.Parameter(torch.ones(2))
    reducer = DenseReducer([[weight]], TwoAlike(), waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
    reducer.begin_pass(is_last=True)
    with pytest.raises(ConfigError, match=r"weight of shape \[2\] got gradients in several backward passes of a step"):
        passes(weight)


def test_gradients_of_several_passes_are_summed_once() -> None:
    """A weight that the last pass does not touch included, as one that only it touches."""
    weights = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    sums = TwoAlike()
    reducer = DenseReducer([[weight] for weight in weights], sums, waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
    for _ in range(2):
        started = len(sums.started)
        for weight in weights:
            weight.grad = None
        reducer.begin_pass(is_last=False)
        (weights[0].sum() + 5 * weights[1].sum()).backward()
        assert len(sums.started) == started
        reducer.begin_pass(is_last=True)
        (2 * weights[0].sum() + 3 * weights[2].sum()).backward()
        assert sums.started[started:] == [(0, 2)]
        reducer.wait()
        assert sums.started[started:] == [(0, 2), (1, 2), (2, 2)]
        assert [weight.grad.tolist() for weight in weights if weight.grad is not None] == [[6, 6], [10, 10], [6, 6]]
