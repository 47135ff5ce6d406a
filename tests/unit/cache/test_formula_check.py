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
from bagpipe_hpc.kernels.rows.row_operations import row_operations
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


class Divides(Sum):
    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        weights.div_(gradients * 0)


class OddError(Exception): ...


class Odd(Sum):
    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        raise OddError("mine")


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


class SameKernel(SGD):
    """Has the kernel of the class that it derives from."""


class OtherKernel(SGD):
    """Would be half as fast, or twice, as `kernels.backend` says."""

    def kernel(self, step: int) -> KernelCall:
        return KernelCall("sgd", (self.rate(step) / 2,))


class LaterKernel(SGD):
    def kernel(self, step: int) -> KernelCall | None:
        return KernelCall("sgd", (self.rate(step) / 2,)) if step > 1 else None


class UnknownKernel(SGD):
    def kernel(self, step: int) -> KernelCall:
        return KernelCall("lion", (self.rate(step),))


class KernelOfMoreNumbers(SGD):
    def kernel(self, step: int) -> KernelCall:
        return KernelCall("sgd", (self.rate(step), 1.0))


class KernelOfOtherState(SGD):
    def kernel(self, step: int) -> KernelCall:
        return KernelCall("adagrad", (self.rate(step), 1.0))


class TupleForKernel(SGD):
    def kernel(self, step: int) -> KernelCall:
        return ("sgd", (self.rate(step),))  # type: ignore[return-value]


def check(kind: str, width: int = 5, rates: RowsRateConfig | None = None, backend: str = "auto") -> None:
    check_formula(OptimizerConfig(rows=kind), width, CPU, row_operations(backend, CPU), rates)


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
        (Divides, "its update gives numbers that are not finite"),
        (Odd, r"its update fails on .* OddError: mine"),
    ],
)
def test_a_broken_rule_is_named(kind: type[RowOptimizer], said: str) -> None:
    with pytest.raises(ConfigError, match=re.compile(said)) as raised:
        check(f"{__name__}:{kind.__name__}")
    assert str(raised.value).startswith(f"optimizer.rows = '{__name__}:{kind.__name__}': its update ")


def test_a_kernel_that_gives_the_formulas_bits_passes() -> None:
    check(f"{__name__}:{SameKernel.__name__}", backend="native")


@pytest.mark.parametrize("kind", [OtherKernel, LaterKernel])
def test_a_kernel_that_does_something_else_is_refused(kind: type[RowOptimizer]) -> None:
    """Where kernels are used; which rule is the right one nobody else could say."""
    check(f"{__name__}:{kind.__name__}", backend="reference")
    with pytest.raises(ConfigError, match=r"its update and its kernel\(step\) give different bits: let both give"):
        check(f"{__name__}:{kind.__name__}", backend="native")


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (UnknownKernel, r"works, but there is no kernel 'lion': use one of sgd, .*ftrl"),
        (
            KernelOfMoreNumbers,
            r"its kernel 'sgd' takes 1 number and .* per_weight = \[\]; it has \(.*, 1\.0\) and \[\]",
        ),
        (KernelOfOtherState, r"its kernel 'adagrad' takes 2 numbers and .* = \[True\]; it has \(.*\) and \[\]"),
        (TupleForKernel, r"its kernel\(step\) gives \('sgd', .*\): return a KernelCall\(name, numbers\), or None"),
    ],
)
def test_a_kernel_that_there_is_not_is_named(kind: type[RowOptimizer], said: str, backend: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(f"{__name__}:{kind.__name__}", backend=backend)
