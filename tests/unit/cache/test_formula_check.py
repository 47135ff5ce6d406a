"""A formula that breaks the contract of row optimizers is refused before a run, with what is wrong and the cure."""
# ruff: noqa: ARG002 - formulas here need not use all that they are given

import re

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.formula_check import check_formula
from bagpipe_hpc.config.rates import RowsRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.sgd import SGD
from tests.row_optimizers import BUILT_IN

CPU = torch.device("cpu")
State = tuple[Tensor, ...]


class Sum(RowOptimizer):
    """Keeps the rules; each of those below breaks one."""

    state = (StateColumns("sum", per_weight=True, first=0.5),)

    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        state[0].add_(gradients)
        weights.sub_(state[0] * (0.1 / step))


class NotInPlace(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        state[0].add_(gradients)
        weights = weights - state[0] * 0.1


class Returns(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> Tensor:  # type: ignore[override]
        return weights.sub_(gradients)


class Reshapes(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients)
        state[0].resize_(1, 2)


class ChangesGradients(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients.mul_(0.1))


class MeanOfTheBatch(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients - gradients.mean(0))


class NumberOfRows(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients / len(weights))


class PlaceInTheBatch(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients)
        weights[-1] += 1.0


class Remembers(Sum):
    """Counts its calls, of which a trainer makes another number than the reference."""

    calls = 0

    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        self.calls += 1
        weights.sub_(gradients * self.calls)


class WrongWidth(Sum):
    state = (StateColumns("sum", per_weight=False),)


class Misspelt(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.subtract_from_(gradients)


class KernelOfTheFullRate(SGD):
    def kernel(self, step: int) -> KernelCall:
        return KernelCall("sgd", (self.settings.lr,))


class FormulaOfTheFullRate(SGD):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients * self.settings.lr)


class NoRate(Sum):
    def update(self, weights: Tensor, state: State, gradients: Tensor, step: int) -> None:
        weights.sub_(gradients * (0.1 * self.rates.factor(step)))


def check(kind: str, width: int = 5, rates: RowsRateConfig | None = None) -> None:
    check_formula(OptimizerConfig(rows=kind), width, CPU, rates)


@pytest.mark.parametrize("width", [1, 3, 8, 16, 48, 5000])
@pytest.mark.parametrize("name", [*BUILT_IN, f"{__name__}:Sum"])
def test_a_formula_that_keeps_the_rules_passes(name: str, width: int) -> None:
    check(name, width)


def test_a_width_that_is_a_mistake_takes_no_memory() -> None:
    check("adam", (1 << 31) - 1)


@pytest.mark.parametrize("name", [*BUILT_IN, f"{__name__}:NoRate"])
def test_a_formula_that_follows_the_rate_passes(name: str) -> None:
    check(name, rates=RowsRateConfig(decay="cosine", decay_steps=100))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Sum, r"its update does not follow \[rows_rate\]: take self\.rate\(step\) instead"),
        (FormulaOfTheFullRate, r"its update does not follow \[rows_rate\]"),
        (KernelOfTheFullRate, r"its update does, and its kernel\(step\) does not follow \[rows_rate\]"),
    ],
)
def test_a_rate_is_never_ignored(kind: type[RowOptimizer], said: str) -> None:
    """Where there is a schedule; a class that knows of none works as before."""
    name = f"{__name__}:{kind.__name__}"
    check(name)
    check(name, rates=RowsRateConfig(warmup_steps=1))
    with pytest.raises(ConfigError, match=said):
        check(name, rates=RowsRateConfig(warmup_steps=2))


OTHER_BITS = "gives a row other bits among other rows.*rows.optimizers.exact"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (NotInPlace, "leaves the weights as they were: change them in place"),
        (Returns, "returns something"),
        (Reshapes, r"changes shapes from \[8000, 5\], \[8000, 5\] to \[8000, 5\], \[1, 2\]"),
        (ChangesGradients, "changes the gradients, which others read: work on copies"),
        (MeanOfTheBatch, OTHER_BITS),
        (NumberOfRows, OTHER_BITS),
        (PlaceInTheBatch, OTHER_BITS),
        (Remembers, OTHER_BITS),
        (WrongWidth, r"fails on 8000 rows of width 5 \(.*test_formula_check\.py, line \d+: RuntimeError: .*shape"),
        (Misspelt, r"fails on .*AttributeError: .*subtract_from_"),
    ],
)
def test_a_broken_rule_is_named(kind: type[RowOptimizer], said: str) -> None:
    with pytest.raises(ConfigError, match=re.compile(said)) as raised:
        check(f"{__name__}:{kind.__name__}")
    assert str(raised.value).startswith(f"optimizer.rows = '{__name__}:{kind.__name__}': its update ")
