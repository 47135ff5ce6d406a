"""A dense optimizer that would break a run later is refused by name before one begins."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer, known_optimizers
from bagpipe_hpc.models.optimizer.trial import state_numbers
from tests.extending import Example


class Signs(Optimizer):
    """Steps of the same length, whatever the gradient; a rate that decays with a count of each weight's steps."""

    def __init__(self, weights: Any, lr: float, decay: float = 0.5) -> None:
        super().__init__(weights, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.state[weight]["steps"] = steps = self.steps_of(weight) + 1
                    weight.sub_(weight.grad.sign() * self.rate(group, steps))

    def steps_of(self, weight: nn.Parameter) -> int:
        return int(self.state[weight].get("steps", 0))

    def rate(self, group: dict[str, Any], steps: int) -> float:
        return float(group["lr"] * group["decay"] ** steps)


class NoOptimizer:
    def __init__(self, weights: Any, lr: float) -> None: ...


class WantsAClosure(Signs):
    def step(self, closure: Any) -> None:  # type: ignore[override]
        closure()


class Random(Signs):
    def rate(self, group: dict[str, Any], steps: int) -> float:  # noqa: ARG002
        return float(torch.rand(()))


class RemembersElsewhere(Signs):
    taken = 0

    def steps_of(self, weight: nn.Parameter) -> int:  # noqa: ARG002
        self.taken += 1
        return self.taken


class RemembersInItsGroups(Signs):
    """As torch's own `state_dict` would bring it back, but a run that goes on has hyperparameters of its own."""

    def steps_of(self, weight: nn.Parameter) -> int:  # noqa: ARG002
        group = self.param_groups[0]
        group["taken"] = taken = group.get("taken", 0) + 1
        return int(taken)


class HasNoRate(Signs):
    def __init__(self, weights: Any, lr: float) -> None:
        super().__init__(weights, lr)
        del self.param_groups[0]["lr"]


class KeepsComplexNumbers(Signs):
    def steps_of(self, weight: nn.Parameter) -> int:
        self.state[weight]["phase"] = torch.ones(2, dtype=torch.complex64)
        return super().steps_of(weight)


class HasAStrangeKey(Signs):
    def steps_of(self, weight: nn.Parameter) -> int:
        self.state[weight][(1, 2)] = 3
        return super().steps_of(weight)


class KeepsASet(Signs):
    def steps_of(self, weight: nn.Parameter) -> int:
        self.state[weight]["seen"] = {1, 2}
        return super().steps_of(weight)


class ChangesFrozenWeights(Signs):
    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step(closure)
        for weight in self.param_groups[0]["params"]:
            weight.mul_(0.9)


class Explodes(Signs):
    def rate(self, group: dict[str, Any], steps: int) -> float:  # noqa: ARG002
        return float("inf")


def named(kind: type, **options: Any) -> OptimizerConfig:
    return OptimizerConfig(dense=f"{__name__}:{kind.__name__}", dense_lr=0.1, dense_options=options)


@pytest.mark.parametrize("name", known_optimizers())
def test_every_optimizer_of_torch_passes(name: str) -> None:
    assert state_numbers(OptimizerConfig(dense=name)) >= 0


def test_ones_own_passes_and_gets_its_options() -> None:
    assert state_numbers(named(Signs, decay=0.25)) == 0
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([3.0, -0.1])
    dense_optimizer(named(Signs, decay=0.25), [weight]).step()
    assert torch.equal(weight.detach(), torch.ones(2) - torch.tensor([1.0, -1.0]) * (0.1 * 0.25))


def test_the_example_is_torchs_two_optimizers(example: Callable[[str], Example]) -> None:
    """The matrix as with Muon, the bias as with AdamW; the rates are set by group."""
    added = example("Dense optimizer")
    config = OptimizerConfig("sgd", None, "muon_and_adamw:MuonAndAdamW", 0.01, {"adamw_lr": 0.5})
    with added.importable():
        assert 1 < state_numbers(config) < 1.1
        ours, theirs = ([nn.Parameter(torch.eye(3)), nn.Parameter(torch.ones(3))] for _ in range(2))
        optimizers = [dense_optimizer(config, ours)]
    optimizers += [torch.optim.Muon(theirs[:1], lr=0.01), torch.optim.AdamW(theirs[1:], lr=0.5)]
    for _ in range(3):
        for weight in (*ours, *theirs):
            weight.grad = weight.detach() * 0.3 + 0.1
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoOptimizer, r"optimizer\.dense = '.*:NoOptimizer': must be a subclass of torch\.optim\.Optimizer"),
        (WantsAClosure, "WantsAClosure says: TypeError: .*closure"),
        (Random, "Random gives other weights for the same gradients"),
        (RemembersElsewhere, r"RemembersElsewhere does not go on from its state_dict .* self\.state\[weight\]"),
        (RemembersInItsGroups, r"RemembersInItsGroups does not go on from its state_dict .* not in param_groups"),
        (HasNoRate, r"HasNoRate has a group without lr in its param_groups: give .* \{'lr': lr\}"),
        (KeepsASet, "KeepsASet keeps what no checkpoint holds: state_dict/state/0/seen is a set: .* tensors, numbers"),
        (KeepsComplexNumbers, "holds: state_dict/state/0/phase is a .* tensor of torch.complex64: use one of float64"),
        (HasAStrangeKey, r"holds: state_dict/state/0 has the key \(1, 2\): keys must be strings or whole numbers"),
        (ChangesFrozenWeights, "ChangesFrozenWeights changes a weight that has no gradient: pass over"),
        (Explodes, "Explodes leaves weights that are not finite"),
    ],
)
def test_what_is_wrong_is_named(kind: type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        state_numbers(named(kind))


def test_an_option_that_it_does_not_take_is_named() -> None:
    with pytest.raises(ConfigError, match=r"_options = \{'momentum': 0\.9\}: .*:Signs says: TypeError: .*momentum"):
        state_numbers(named(Signs, momentum=0.9))


class MeetsALimit(Signs):
    def __init__(self, weights: Any, lr: float) -> None:  # noqa: ARG002
        raise RuntimeError("can't start new thread")


def test_a_limit_that_it_meets_is_not_its_fault() -> None:
    with pytest.raises(CapacityError, match=r"^no more threads .*ulimit -u"):
        state_numbers(named(MeetsALimit))


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.dense = 'no\.such:Thing': there is no module no; set"):
        state_numbers(OptimizerConfig(dense="no.such:Thing"))
