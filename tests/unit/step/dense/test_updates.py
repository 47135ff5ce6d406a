"""Dense weights that are updated before they are read again, or at the end of a step: the same bits."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig, TrainConfig
from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.layers.layer_weights import LayerWeights
from bagpipe_hpc.models.layers.linear import blas_linear, linear_kernels
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer, known_optimizers
from bagpipe_hpc.models.sums.reduction import DenseReducer
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.step.dense.updates import DenseUpdates, may_wait, order_of_sums
from bagpipe_hpc.step.slice_step import Session, click_training
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace
from tests.unit.models.sums.test_reduction import TwoAlike, nobody

OPTIMIZERS = {name: {} for name in known_optimizers() if name != "Muon"}  # which is for matrices alone
OPTIMIZERS |= {"SGD": {"momentum": 0.9}, "AdamW": {"weight_decay": 0.1}, "RMSprop": {"momentum": 0.5}}
STEPS = 6


class Net(nn.Module):
    """Two layers that say what they read, and a scale that says nothing."""

    def __init__(self, late: LayerWeights) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 1)])
        self.scale = nn.Parameter(torch.ones(5))
        for weight in self.parameters():
            nn.init.normal_(weight, generator=generator)
        self.linear = blas_linear(linear_kernels("auto"), late)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first, second = self.layers
        hidden = self.linear(inputs * self.scale, first.weight, first.bias, True)
        return self.linear(hidden, second.weight, second.bias, False)


class OwnNet(nn.Module):
    """Takes its layers from others, and reads a weight besides."""

    def use_kernels(self, kernels: ModelKernels) -> None:
        """As `TakesKernels` has it."""


def each_apart(net: Net) -> list[list[nn.Parameter]]:
    """The scale, and each layer."""
    first, second = net.layers
    return [[net.scale], [*first.parameters()], [*second.parameters()]]


class Run:
    """Steps of one trainer of two alike."""

    def __init__(
        self, *, can_wait: bool, optimizer: str = "SGD", groups: Callable[[Net], list[list[nn.Parameter]]] = each_apart
    ) -> None:
        self.late = LayerWeights()
        self.net = Net(self.late)
        of_net = groups(self.net)
        order_of_sums(of_net, self.late, TrainConfig())
        config = OptimizerConfig(dense=optimizer, dense_lr=1e-3, dense_options=OPTIMIZERS[optimizer])
        self.optimizer = dense_optimizer(config, self.net.parameters())
        self.seen: list[tuple[int, bool]] = []
        self.stepped: list[int] = []
        parts: Any = SimpleNamespace(
            layer_weights=self.late,
            clear_gradients=self.optimizer.zero_grad,
            step_dense=self.step_dense,
            update_dense=self.update_dense,
            divergence=SimpleNamespace(see_dense=self.see_dense),
        )
        reducer = DenseReducer(of_net, TwoAlike(), waits=Waits(1.0, nobody), device=Cpu(), ring=nobody)
        self.updates = DenseUpdates(parts, reducer, of_net, StepStats(), Trace(enabled=False), can_wait=can_wait)

    def step_dense(self, step: int) -> None:
        self.stepped.append(step)
        self.optimizer.step()

    def update_dense(self, step: int) -> None:
        self.step_dense(step)
        self.see_dense(step)

    def see_dense(self, step: int) -> None:
        self.seen.append((step, all(weight.grad is not None for weight in self.net.parameters())))

    def train(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        self.optimizer.zero_grad()
        self.updates.begin_pass(is_last=True)
        self.late.begin_pass(before_use=self.updates.before_use)
        loss = self.net(torch.randn(16, 5, generator=generator)).square().mean()
        self.updates.settle()
        loss.backward()
        self.updates.end_step(step)

    def weights(self) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in self.net.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_bits_are_those_of_updates_at_the_end(optimizer: str) -> None:
    at_end, late = Run(can_wait=False, optimizer=optimizer), Run(can_wait=True, optimizer=optimizer)
    for step in range(1, STEPS + 1):
        at_end.train(step)
        late.train(step)
    assert not all(map(torch.equal, late.weights(), at_end.weights()))  # the last sums are still under way
    late.updates.settle()
    assert all(map(torch.equal, late.weights(), at_end.weights()))
    assert late.seen == at_end.seen == [(step, True) for step in range(1, STEPS + 1)]
    states = late.optimizer.state_dict()["state"], at_end.optimizer.state_dict()["state"]
    for own, other in zip(*(state.values() for state in states), strict=True):
        assert all(torch.equal(torch.as_tensor(own[key]), torch.as_tensor(other[key])) for key in other)


def test_each_group_is_updated_when_it_is_read_or_may_be() -> None:
    run = Run(can_wait=True)
    run.train(1)
    assert run.stepped == []
    run.updates.begin_pass(is_last=True)
    assert run.stepped == [1]  # the scale, of which no layer says when it is read
    first, second = run.net.layers
    run.updates.before_use(second.bias)
    run.updates.before_use(second.weight)
    assert run.stepped == [1, 1]
    assert first.weight.grad is None
    run.updates.before_use(first.weight)
    assert run.stepped == [1, 1, 1]
    run.updates.settle()
    assert run.stepped == [1, 1, 1]
    assert run.seen == [(1, True)]
    assert all(weight.grad is None for weight in run.net.parameters())


def test_a_group_with_one_weight_of_which_no_layer_tells_is_updated_before_the_pass() -> None:
    run = Run(
        can_wait=True, groups=lambda net: [[net.scale, *net.layers[0].parameters()], [*net.layers[1].parameters()]]
    )
    run.train(1)
    run.updates.begin_pass(is_last=True)
    assert run.stepped == [1]
    run.updates.settle()
    assert run.stepped == [1, 1]


def test_before_layers_have_said_what_they_read_all_is_updated() -> None:
    run = Run(can_wait=True)
    run.net.linear = blas_linear(linear_kernels("auto"))
    run.train(1)
    run.updates.begin_pass(is_last=True)
    assert run.stepped == [1, 1, 1]


@pytest.mark.parametrize(
    ("share", "expected", "at_once"),
    [(0.0, "0123", 4), (0.4, "0123", 3), (0.5, "0132", 2), (0.8, "0321", 1), (0.99, "0321", 1), (1.0, "3210", 0)],
)
def test_late_groups_come_in_the_order_of_the_next_pass_behind_the_others(
    share: float, expected: str, at_once: int
) -> None:
    """Late are the last groups, as long as they have no more than their share; layers of all say what they read."""
    layers = [nn.Parameter(torch.ones(size)) for size in (2, 3, 1, 4)]
    groups, late = [[layer] for layer in layers], LayerWeights()
    assert order_of_sums(groups, late, TrainConfig(weight_gradients="late", late_share=share)) == [
        groups[int(number)] for number in expected
    ]
    for _ in range(2):
        late.begin_pass()
        are_late = [late.use(layer, nn.Parameter(torch.ones(1))) is not None for layer in layers]
    assert are_late == [number >= at_once for number in range(4)]
    assert all(map(late.knows, layers))


def test_updates_wait_where_nobody_can_tell_the_difference() -> None:
    def own_loop(session: Session) -> None:
        click_training(session)

    assert may_wait(Config(), click_training)
    assert not may_wait(Config(), own_loop)


@pytest.mark.parametrize(
    "other",
    [
        Config(model=ModelConfig(name=f"{__name__}:OwnNet")),  # which may read weights in its own way
        Config(model=ModelConfig(precision="bfloat16")),  # whose layers say nothing
        Config(optimizer=OptimizerConfig(dense_clip_norm=1.0)),
        Config(optimizer=OptimizerConfig(dense=f"{__name__}:ByTheNormOfAll")),
    ],
)
def test_updates_do_not_wait_where_somebody_might(other: Config) -> None:
    assert not may_wait(other, click_training)
