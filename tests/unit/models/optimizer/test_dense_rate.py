"""Any dense optimizer follows its rate, with the weights of torch's own schedulers; one that cannot is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.rates import DenseRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer, known_optimizers
from bagpipe_hpc.models.optimizer.dense_rate import DenseRate, require_rate_followed
from tests.extending import Example

LR, STEPS = 0.1, 12
schedulers = torch.optim.lr_scheduler
SCHEDULES: dict[str, tuple[DenseRateConfig, Any, int]] = {
    "warm-up": (
        DenseRateConfig(warmup_steps=5),
        lambda optimizer: schedulers.LinearLR(optimizer, start_factor=1 / 5, total_iters=4),
        0,
    ),
    "step": (
        DenseRateConfig(decay="step", decay_steps=4, gamma=0.5),
        lambda optimizer: schedulers.StepLR(optimizer, 4, 0.5),
        0,
    ),
    "cosine": (
        DenseRateConfig(decay="cosine", decay_steps=STEPS, end_factor=0.1),
        lambda optimizer: schedulers.CosineAnnealingLR(optimizer, STEPS, eta_min=0.1 * LR),
        1,
    ),
    "polynomial": (
        DenseRateConfig(decay="polynomial", decay_steps=9, power=3.0),
        lambda optimizer: schedulers.PolynomialLR(optimizer, 9, 3.0),
        1,
    ),
}
"""By name: our schedule, torch's, and how often theirs is stepped before the first step."""


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_weights_are_those_of_torchs_schedulers(name: str, schedule: str) -> None:
    rates, make, earlier = SCHEDULES[schedule]
    ours, theirs = parameter(), parameter()
    optimizer = dense_optimizer(OptimizerConfig(dense=name, dense_lr=LR), [ours])
    rate = DenseRate(optimizer, LR, rates)
    their_optimizer = getattr(torch.optim, name)([theirs], lr=LR)
    scheduler = make(their_optimizer)
    for _ in range(earlier):
        scheduler.step()
    for step in range(1, STEPS + 1):
        rate.set(step)
        assert rate.of(step) == pytest.approx(their_optimizer.param_groups[0]["lr"], rel=1e-12, abs=1e-18)
        for weights, each in ((ours, optimizer), (theirs, their_optimizer)):
            weights.grad = torch.full_like(weights, 1.0 + step % 3)
            each.step()
        scheduler.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)


def test_a_constant_rate_touches_nothing() -> None:
    optimizer = torch.optim.SGD([parameter()], lr=LR)
    rate = DenseRate(optimizer, LR, DenseRateConfig())
    optimizer.param_groups[0]["lr"] = "untouched"
    rate.set(3)
    assert optimizer.param_groups[0]["lr"] == "untouched"


def test_a_rate_that_is_a_tensor_stays_one() -> None:
    """As capturable optimizers have it; another group keeps a rate of its own."""
    first, second = parameter(), parameter()
    groups = [{"params": [first]}, {"params": [second], "lr": 7.0}]
    optimizer = torch.optim.SGD(groups, lr=torch.tensor(LR))
    tensor = optimizer.param_groups[0]["lr"]
    DenseRate(optimizer, LR, DenseRateConfig(warmup_steps=4)).set(1)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert float(tensor) == pytest.approx(LR / 4)
    assert optimizer.param_groups[1]["lr"] == pytest.approx(7.0 / 4)


@pytest.mark.parametrize("name", [name for name in known_optimizers() if name not in ("ASGD", "Rprop")])
def test_every_other_optimizer_of_torch_follows(name: str) -> None:
    require_rate_followed(OptimizerConfig(dense=name), DenseRateConfig(warmup_steps=9))


@pytest.mark.parametrize("lr", [1e-3, 10.0])
def test_a_large_rate_that_an_optimizer_bounds_is_followed(lr: float) -> None:
    """Adafactor takes 1 / sqrt(step) at most."""
    require_rate_followed(OptimizerConfig(dense="Adafactor", dense_lr=lr), DenseRateConfig(warmup_steps=9))


@pytest.mark.parametrize("name", ["Rprop", "ASGD"])
def test_one_that_takes_a_rate_at_the_start_or_a_step_late_is_refused(name: str) -> None:
    config = OptimizerConfig(dense=name)
    require_rate_followed(config, DenseRateConfig())
    with pytest.raises(ConfigError, match=rf"optimizer\.dense = '{name}': .* would not follow \[dense_rate\]; leave"):
        require_rate_followed(config, DenseRateConfig(warmup_steps=9))


def test_torchs_asgd_still_takes_a_rate_a_step_late() -> None:
    """Where it does no more, what is said of it when a run goes on (`resumed_settings`) is to go, too."""
    weights = [parameter(), parameter()]
    for weight, second in zip(weights, (LR, 5 * LR), strict=True):
        optimizer = torch.optim.ASGD([weight], lr=LR)
        for rate in (LR, second):
            optimizer.param_groups[0]["lr"] = rate
            weight.grad = torch.ones_like(weight)
            optimizer.step()
    assert torch.equal(*weights)


def test_an_optimizer_with_groups_by_shape_is_tried_with_a_bias_too(example: Callable[[str], Example]) -> None:
    config = OptimizerConfig(dense="muon_and_adamw:MuonAndAdamW", dense_options={"adamw_lr": 0.1})
    with example("Dense optimizer").importable():
        require_rate_followed(config, DenseRateConfig(warmup_steps=5))
