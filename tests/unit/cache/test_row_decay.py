"""Rows decay once at each use, with any optimizer, to the same bits with a native kernel and without."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_decay import RowDecay
from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.config.rates import RowsRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer
from tests.row_optimizers import BUILT_IN, optimizer_config, row_optimizer

CPU = torch.device("cpu")
ROWS, WIDTH, STEPS, DECAY, LR = 40, 7, 9, 0.3, 0.1
MODES = {"l2": RowDecay(DECAY, is_decoupled=False), "decoupled": RowDecay(DECAY, is_decoupled=True)}
RATES = RowsRateConfig(warmup_steps=5)

modes = pytest.mark.parametrize("mode", MODES)


class Own(RowOptimizer):
    """One of a user's own, without a kernel and without settings."""

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:  # noqa: ARG002
        weights.sub_(gradients * 0.5)


class OwnSettings:
    lr = LR


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def tables_of(optimizer: RowOptimizer) -> list[Tensor]:
    state = [torch.zeros(ROWS, part.width(WIDTH)) for part in optimizer.state]
    return [numbers(1, ROWS, WIDTH), *state]


def trained(optimizer: RowOptimizer, decay: RowDecay | None, backend: str, slots: Tensor | None = None) -> list[Tensor]:
    """Weights and state after some steps that all use the same rows."""
    operations = row_operations(backend, CPU)
    weights, *state = tables = tables_of(optimizer)
    slots = torch.arange(ROWS, dtype=torch.int32) if slots is None else slots
    for step in range(1, STEPS + 1):
        gradients = numbers(1 + step, ROWS, WIDTH)[slots.long()]
        update_rows(operations, optimizer, weights, state, slots, gradients, step, decay=decay)
    return tables


@modes
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_kernel_and_a_formula_decay_to_the_same_bits(name: str, mode: str) -> None:
    optimizer = build_row_optimizer(optimizer_config(name, lr=LR), RATES)
    native, plain, undecayed = (
        trained(optimizer, decay, backend)
        for decay, backend in ((MODES[mode], "auto"), (MODES[mode], "reference"), (None, "reference"))
    )
    for one, other in zip(native, plain, strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    assert not torch.equal(native[0], undecayed[0])


@pytest.mark.parametrize(
    ("name", "mode", "kind", "options"),
    [
        ("sgd", "l2", torch.optim.SGD, {}),
        ("momentum", "l2", torch.optim.SGD, {"momentum": 0.9}),
        ("adagrad", "l2", torch.optim.Adagrad, {"eps": 1e-8}),
        ("adam", "l2", torch.optim.Adam, {}),
        ("adam", "decoupled", torch.optim.AdamW, {}),
    ],
)
def test_rows_that_are_always_used_decay_as_torchs_weights(
    name: str, mode: str, kind: Any, options: dict[str, Any]
) -> None:
    """Also along a schedule of the rate, on which the decoupled one depends."""
    weights = torch.nn.Parameter(numbers(1, ROWS, WIDTH).double())
    theirs = kind([weights], lr=LR, weight_decay=DECAY, **options)
    for step in range(1, STEPS + 1):
        theirs.param_groups[0]["lr"] = LR * RATES.factor(step)
        weights.grad = numbers(1 + step, ROWS, WIDTH).double()
        theirs.step()
    found, *_ = trained(build_row_optimizer(optimizer_config(name, lr=LR), RATES), MODES[mode], "auto")
    torch.testing.assert_close(found.double(), weights.detach(), rtol=1e-4, atol=1e-5)


@modes
def test_rows_that_are_not_used_do_not_decay(mode: str) -> None:
    slots = torch.tensor([3, 17, 5], dtype=torch.int32)
    (weights,) = trained(row_optimizer("sgd", lr=LR), MODES[mode], "auto", slots)
    stay = torch.ones(ROWS, dtype=torch.bool).index_fill(0, slots.long(), False)
    assert torch.equal(weights[stay], numbers(1, ROWS, WIDTH)[stay])
    everywhere, *_ = trained(row_optimizer("sgd", lr=LR), MODES[mode], "auto")
    assert torch.equal(weights[slots.long()], everywhere[slots.long()])


def test_an_optimizer_of_ones_own_decays_too() -> None:
    (weights,) = trained(Own(None), MODES["l2"], "auto")
    expected = numbers(1, ROWS, WIDTH)
    for step in range(1, STEPS + 1):
        expected -= (numbers(1 + step, ROWS, WIDTH) + expected * DECAY) * 0.5
    assert torch.equal(weights, expected)
    own = Own(OwnSettings())
    own.rates = RATES
    (weights,) = trained(own, MODES["decoupled"], "auto")
    expected = numbers(1, ROWS, WIDTH)
    for step in range(1, STEPS + 1):
        expected -= expected * (LR * RATES.factor(step) * DECAY)
        expected -= numbers(1 + step, ROWS, WIDTH) * 0.5
    assert torch.equal(weights, expected)


@modes
def test_gradients_are_clipped_before_they_decay_and_left_as_they_are(mode: str) -> None:
    operations, slots = row_operations("auto", CPU), torch.arange(ROWS, dtype=torch.int32)
    weights, clipped = numbers(1, ROWS, WIDTH), numbers(1, ROWS, WIDTH)
    gradients = torch.zeros(ROWS, WIDTH)
    gradients[:, 0] = 1.0
    short = gradients * 0.5
    update_rows(operations, row_optimizer("sgd", lr=LR), weights, [], slots, gradients, 1, 0.5, MODES[mode])
    update_rows(operations, row_optimizer("sgd", lr=LR), clipped, [], slots, short, 1, 0.0, MODES[mode])
    assert torch.equal(weights, clipped)
    assert (gradients[:, 0] == 1.0).all()


def test_no_decay_is_no_operation() -> None:
    assert RowDecay.of(OptimizerConfig()) is None
    assert RowDecay.of(OptimizerConfig(rows_weight_decay=0.5)) == RowDecay(0.5, is_decoupled=False)
    decoupled = OptimizerConfig(rows_weight_decay=0.5, rows_weight_decay_mode="decoupled")
    assert RowDecay.of(decoupled) == RowDecay(0.5, is_decoupled=True)


def test_ftrl_would_lose_a_decay_of_the_weights_themselves() -> None:
    lazy = {"rows": "ftrl", "rows_weight_decay": 0.5}
    build_row_optimizer(OptimizerConfig(**lazy))
    with pytest.raises(
        ConfigError, match=r"rows_weight_decay_mode = 'decoupled': ftrl computes weights from its state"
    ):
        build_row_optimizer(OptimizerConfig(**lazy, rows_weight_decay_mode="decoupled"))


def test_a_class_without_a_rate_cannot_decay_by_it() -> None:
    OptimizerConfig(rows=f"{__name__}:Own", rows_weight_decay=0.5)
    with pytest.raises(ConfigError, match=r"rows_weight_decay_mode = 'decoupled': .* has no setting lr; use l2"):
        OptimizerConfig(rows=f"{__name__}:Own", rows_weight_decay=0.5, rows_weight_decay_mode="decoupled")
