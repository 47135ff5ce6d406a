"""Pooling equals plain loops to the last bit, and its derivative is that of torch's own bags."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.row_operations import RowOperations, row_operations

ROWS, USED = 12, 7
F32 = np.float32

needs_native = pytest.mark.skipif(not shared_library.is_built(native.LIBRARY), reason="_row_operations.so is not built")
implementations = pytest.mark.parametrize(
    "operations",
    [
        pytest.param(ReferenceRowOperations(), id="reference"),
        pytest.param(row_operations("auto", torch.device("cpu")), id="native", marks=needs_native),
    ],
)
bags = st.lists(st.integers(0, 6), max_size=8)
widths = st.one_of(st.integers(1, 20), st.sampled_from((32, 64)))


def numbers(seed: int, *shape: int) -> Tensor:
    """Float32 numbers of both signs over twelve orders of magnitude, so that any other order of a sum shows."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)).astype(F32))


class Case:
    """A table, the slots of a batch, and bags of random look-ups, some of them equal."""

    def __init__(self, seed: int, counts: list[int], width: int, *, is_scaled: bool) -> None:
        rng = np.random.default_rng(seed)
        self.look_ups = sum(counts)
        self.table = numbers(seed, ROWS, width)
        self.slots = torch.from_numpy(rng.permutation(ROWS)[:USED].astype(np.int32))
        self.positions = torch.from_numpy(rng.integers(0, USED, self.look_ups, dtype=np.int32))
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        outputs = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        scales = numbers(seed + 1, self.look_ups) if is_scaled else None
        self.layout = PoolLayout(torch.from_numpy(starts), torch.from_numpy(outputs), scales)
        self.gradients = numbers(seed + 2, len(counts), width)

    def scaled(self, row: Tensor, look_up: int) -> np.ndarray:
        """A row times the weight of a look-up, rounded."""
        values = row.numpy()
        return values if self.layout.scales is None else values * F32(self.layout.scales[look_up])

    def pool(self, operations: RowOperations) -> Tensor:
        return operations.pool(self.table, self.slots, self.positions, self.layout)

    def sum_pooled(self, operations: RowOperations) -> Tensor:
        order = operations.order_look_ups(self.positions, USED)
        return operations.sum_pooled(self.gradients, self.positions, USED, order, self.layout)


@implementations
@given(st.integers(0, 2**32), bags, widths, st.booleans())
def test_pooling_adds_scaled_rows_in_order(
    operations: RowOperations, seed: int, counts: list[int], width: int, is_scaled: bool
) -> None:
    """Each product and each sum is rounded; an empty bag is 0."""
    case = Case(seed, counts, width, is_scaled=is_scaled)
    expected = np.zeros((len(counts), width), dtype=F32)
    rows = case.table[case.slots.long()[case.positions.long()]]
    for look_up, output in enumerate(case.layout.outputs.tolist()):
        expected[output] = expected[output] + case.scaled(rows[look_up], look_up)
    found = case.pool(operations)
    assert found.shape == (len(counts), width)
    np.testing.assert_array_equal(found.numpy().view(np.int32), expected.view(np.int32))


@implementations
@given(st.integers(0, 2**32), bags, widths, st.booleans())
def test_gradients_come_back_to_rows_in_order(
    operations: RowOperations, seed: int, counts: list[int], width: int, is_scaled: bool
) -> None:
    """A row gets as many terms as it has look-ups, also where it stands several times in a bag; none is 0."""
    case = Case(seed, counts, width, is_scaled=is_scaled)
    expected = np.zeros((USED, width), dtype=F32)
    for look_up, (position, output) in enumerate(
        zip(case.positions.tolist(), case.layout.outputs.tolist(), strict=True)
    ):
        expected[position] = expected[position] + case.scaled(case.gradients[output], look_up)
    found = case.sum_pooled(operations)
    np.testing.assert_array_equal(found.numpy().view(np.int32), expected.view(np.int32))


@implementations
@pytest.mark.parametrize("is_scaled", [False, True])
def test_torchs_bags_have_the_same_values_and_derivative(operations: RowOperations, is_scaled: bool) -> None:
    """Against `nn.functional.embedding_bag` in float64, with weights of ids."""
    counts = [0, 3, 1, 0, 40, 2, 0]
    case = Case(5, counts, 8, is_scaled=is_scaled)
    case.table, case.gradients = torch.randn(ROWS, 8), torch.randn(len(counts), 8)
    scales = None if case.layout.scales is None else torch.randn(case.look_ups)
    case.layout = case.layout._replace(scales=scales)
    rows = case.table[case.slots.long()].double().requires_grad_()
    pooled = torch.nn.functional.embedding_bag(
        case.positions.long(),
        rows,
        case.layout.starts[:-1].long(),
        mode="sum",
        per_sample_weights=None if scales is None else scales.double(),
    )
    torch.testing.assert_close(case.pool(operations).double(), pooled, rtol=1e-5, atol=1e-5)
    (gradients,) = torch.autograd.grad(pooled, rows, case.gradients.double())
    torch.testing.assert_close(case.sum_pooled(operations).double(), gradients, rtol=1e-5, atol=1e-5)


@implementations
def test_the_derivative_is_that_of_small_steps(operations: RowOperations) -> None:
    """What a step of one number of one row adds to the outputs, weighted by their gradients; small whole numbers."""
    case = Case(3, [4, 0, 2, 1], 3, is_scaled=True)
    case.table = torch.randint(-4, 5, (ROWS, 3)).float()
    case.gradients = torch.randint(-4, 5, (4, 3)).float()
    case.layout = case.layout._replace(scales=torch.randint(-4, 5, (case.look_ups,)).float())
    found, before = case.sum_pooled(operations), case.pool(operations)
    for row, slot in enumerate(case.slots.tolist()):
        for column in range(3):
            case.table[slot, column] += 1
            change = ((case.pool(operations) - before) * case.gradients).sum()
            case.table[slot, column] -= 1
            assert found[row, column] == change


@implementations
@pytest.mark.parametrize("call", [Case.pool, Case.sum_pooled])
def test_a_sum_of_minus_zeros_is_plus_zero(operations: RowOperations, call: Callable[..., Tensor]) -> None:
    """Sums start with 0."""
    case = Case(1, [1, 2], 16, is_scaled=False)
    case.table, case.gradients = torch.full((ROWS, 16), -0.0), torch.full((2, 16), -0.0)
    assert not torch.signbit(call(case, operations)).any()
