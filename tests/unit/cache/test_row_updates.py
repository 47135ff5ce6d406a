"""Without a native kernel a formula works on copies of the rows, and gives each its bits wherever it lies."""
# ruff: noqa: ARG002 - formulas here need not use all that they are given

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.row_operations import RowOperations, row_operations
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.sgd import SGD

SLOTS = 40
NATIVE = pytest.mark.skipif(not shared_library.is_built(native.LIBRARY), reason="_row_operations.so is not built")
implementations = pytest.mark.parametrize(
    "operations",
    [
        pytest.param(ReferenceRowOperations(), id="reference"),
        pytest.param(row_operations("auto", torch.device("cpu")), id="native", marks=NATIVE),
    ],
)


class Traced(RowOptimizer):
    """State of both kinds; notes what it is given."""

    state = (StateColumns("sum", per_weight=True, first=2.0), StateColumns("count", per_weight=False))

    def __init__(self, settings: object = None) -> None:
        super().__init__(settings)
        self.given: list[tuple[list[list[int]], int]] = []

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        tensors = (weights, *state, gradients)
        assert all(part.is_contiguous() and part.dtype == torch.float32 for part in tensors)
        self.given.append(([list(part.shape) for part in tensors], step))
        total, count = state
        total.add_(gradients * gradients)
        count.add_(1.0)
        weights.sub_(gradients / (total + count) * (1 / step))


def tables(seed: int, width: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.rand(SLOTS, columns, generator=random) for columns in (width, width, 1)]


@implementations
@given(seed=st.integers(0, 2**32), width=st.integers(1, 20), count=st.integers(0, SLOTS), cut=st.integers(0, SLOTS))
def test_any_division_of_the_rows_gives_the_same_bits(
    operations: RowOperations, seed: int, width: int, count: int, cut: int
) -> None:
    """As a step updates rows now, later and private ones apart, and the reference all at once in another place."""
    rng = np.random.default_rng(seed)
    slots = torch.from_numpy(rng.permutation(SLOTS)[:count].astype(np.int32))
    gradients = torch.from_numpy(rng.standard_normal((count, width), dtype=np.float32))
    weights, *state = together = tables(seed, width)
    untouched = [part.clone() for part in together]
    update_rows(operations, Traced(), weights, state, slots, gradients, step=3)

    moved = torch.from_numpy(rng.permutation(SLOTS))  # slot k of `together` is slot moved[k] of `apart`
    apart = [part[moved.argsort()].contiguous() for part in untouched]
    weights, *state = apart
    for part in (slice(cut), slice(cut, None)):
        update_rows(operations, Traced(), weights, state, moved[slots.long()].int()[part], gradients[part], step=3)
    for one, other in zip(together, apart, strict=True):
        assert torch.equal(one, other[moved])

    others = torch.ones(SLOTS, dtype=torch.bool).index_fill(0, slots.long(), False)
    assert all(torch.equal(new[others], old[others]) for new, old in zip(together, untouched, strict=True))
    if count:
        assert not torch.equal(together[0], untouched[0])


@implementations
def test_what_a_formula_is_given(operations: RowOperations) -> None:
    optimizer, (weights, *state) = Traced(), tables(1, 6)
    for count in (3, 0, 1):  # no rows are no call
        slots = torch.arange(count, dtype=torch.int32)
        update_rows(operations, optimizer, weights, state, slots, torch.ones(count, 6), step=9)
    assert optimizer.given == [([[n, 6], [n, 6], [n, 1], [n, 6]], 9) for n in (3, 1)]


class NamesAnotherKernel(SGD):
    def kernel(self, step: int) -> KernelCall:
        return KernelCall("there_is_none", ())


@implementations
def test_without_its_kernel_the_formula_is_taken(operations: RowOperations) -> None:
    weights = torch.ones(3, 2)
    optimizer = NamesAnotherKernel(SGD.Settings(lr=0.25))
    update_rows(operations, optimizer, weights, [], torch.tensor([1], dtype=torch.int32), torch.ones(1, 2), step=1)
    assert weights.tolist() == [[1.0, 1.0], [0.75, 0.75], [1.0, 1.0]]


@NATIVE
def test_with_its_kernel_the_formula_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SGD, "update", None)
    weights = torch.ones(3, 2)
    operations = row_operations("native", torch.device("cpu"))
    slots = torch.tensor([1], dtype=torch.int32)
    update_rows(operations, SGD(SGD.Settings(lr=0.25)), weights, [], slots, torch.ones(1, 2), step=1)
    assert weights[1].tolist() == [0.75, 0.75]
