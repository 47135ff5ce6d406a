"""Row operations equal plain loops to the last bit, and a row's result does not depend on where it stands."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.kernels import reference

LR, EPS = 0.005, 1e-8
F32 = np.float32


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Float32 numbers of both signs over twelve orders of magnitude, so that any other order of a sum shows."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)).astype(F32)


def rounded_fold(values: np.ndarray) -> np.float32:
    """`fold_columns` of one row: halves, each sum rounded to float32."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        values = np.asarray(
            [F32(a + b) for a, b in zip(values, values[half:], strict=False)] + [*values[len(values) - half : half]],
            dtype=F32,
        )
    return values[0]


def test_gather_copies_rows() -> None:
    table = torch.from_numpy(numbers(1, 6, 3))
    copied = reference.gather(table, torch.tensor([4, 0, 4]))
    assert torch.equal(copied, torch.stack([table[4], table[0], table[4]]))
    copied.zero_()
    assert table[4].any()


def test_scatter_overwrites_the_named_rows_alone() -> None:
    table, values = torch.from_numpy(numbers(1, 6, 3)), torch.from_numpy(numbers(2, 2, 3))
    expected = table.clone()
    expected[5], expected[1] = values[0], values[1]
    reference.scatter(table, torch.tensor([5, 1]), values)
    assert torch.equal(table, expected)


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 8), st.integers(1, 9))
def test_sums_run_from_left_to_right(seed: int, lookups: int, count: int, width: int) -> None:
    gradients = numbers(seed, lookups, width)
    positions = np.random.default_rng(seed).integers(0, count, lookups)
    expected = np.zeros((count, width), dtype=F32)
    for position, gradient in zip(positions, gradients, strict=True):
        for column in range(width):
            expected[position, column] = F32(expected[position, column] + gradient[column])
    found = reference.sum_by_position(torch.from_numpy(gradients), torch.from_numpy(positions), count)
    np.testing.assert_array_equal(found.numpy(), expected)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 70))
def test_columns_are_folded_by_halves(seed: int, rows: int, width: int) -> None:
    values = numbers(seed, rows, width)
    found = reference.fold_columns(torch.from_numpy(values))
    np.testing.assert_array_equal(found.numpy(), np.asarray([[rounded_fold(row)] for row in values]))
    np.testing.assert_allclose(
        found.numpy()[:, 0], values.astype(np.float64).sum(1), rtol=0, atol=1e-6 * np.abs(values).sum()
    )


def test_folding_leaves_its_input_alone() -> None:
    values = torch.from_numpy(numbers(1, 3, 5))
    before = values.clone()
    reference.fold_columns(values)
    assert torch.equal(values, before)


@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 20))
def test_sgd_is_its_formula(seed: int, rows: int, width: int) -> None:
    weights, gradients = numbers(seed, 12, width), numbers(seed + 1, rows, width)
    chosen = np.random.default_rng(seed).permutation(12)[:rows]
    expected = weights.copy()
    for row, gradient in zip(chosen, gradients, strict=True):
        for column in range(width):
            expected[row, column] = F32(weights[row, column] - F32(gradient[column] * F32(LR)))
    table = torch.from_numpy(weights)
    reference.apply_sgd(table, torch.from_numpy(chosen), torch.from_numpy(gradients), LR)
    np.testing.assert_array_equal(table.numpy(), expected)


@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 20))
def test_rowwise_adagrad_is_its_formula(seed: int, rows: int, width: int) -> None:
    weights, gradients = numbers(seed, 12, width), numbers(seed + 1, rows, width)
    accumulator = np.abs(numbers(seed + 2, 12, 1))
    chosen = np.random.default_rng(seed).permutation(12)[:rows]
    wanted_weights, wanted_accumulator = weights.copy(), accumulator.copy()
    for row, gradient in zip(chosen, gradients, strict=True):
        mean = F32(rounded_fold(gradient * gradient) / F32(width))
        wanted_accumulator[row] = F32(accumulator[row, 0] + mean)
        divisor = F32(np.sqrt(wanted_accumulator[row, 0]) + F32(EPS))
        for column in range(width):
            step = F32(F32(gradient[column] / divisor) * F32(LR))
            wanted_weights[row, column] = F32(weights[row, column] - step)
    table, state = torch.from_numpy(weights), torch.from_numpy(accumulator)
    reference.apply_rowwise_adagrad(table, state, torch.from_numpy(chosen), torch.from_numpy(gradients), LR, EPS)
    np.testing.assert_array_equal(state.numpy(), wanted_accumulator)
    np.testing.assert_array_equal(table.numpy(), wanted_weights)


def test_an_untouched_row_has_no_adagrad_step() -> None:
    """A gradient of 0 on an accumulator of 0 divides by eps, not by 0."""
    table, state = torch.ones(2, 4), torch.zeros(2, 1)
    reference.apply_rowwise_adagrad(table, state, torch.tensor([0]), torch.zeros(1, 4), LR, EPS)
    assert torch.equal(table, torch.ones(2, 4))
    assert torch.equal(state, torch.zeros(2, 1))


def updated_by_sgd(weights: Tensor, state: Tensor, gradients: Tensor) -> Tensor:
    reference.apply_sgd(weights, torch.arange(len(weights)), gradients, LR)
    return torch.cat((weights, state), 1)


def updated_by_adagrad(weights: Tensor, state: Tensor, gradients: Tensor) -> Tensor:
    reference.apply_rowwise_adagrad(weights, state, torch.arange(len(weights)), gradients, LR, EPS)
    return torch.cat((weights, state), 1)


def summed_twice(weights: Tensor, state: Tensor, gradients: Tensor) -> Tensor:
    """Each row's weights and gradient are two look-ups of it; the look-ups of different rows are mixed."""
    places = torch.arange(len(weights)).repeat(2)
    return torch.cat((reference.sum_by_position(torch.cat((weights, gradients)), places, len(weights)), state), 1)


def folded(weights: Tensor, state: Tensor, gradients: Tensor) -> Tensor:
    return torch.cat((reference.fold_columns(weights), state, reference.fold_columns(gradients)), 1)


@pytest.mark.parametrize("operation", [updated_by_sgd, updated_by_adagrad, summed_twice, folded])
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 40), width=st.integers(1, 70), data=st.data())
def test_a_rows_result_does_not_depend_on_its_place(
    operation: Callable[[Tensor, Tensor, Tensor], Tensor], seed: int, rows: int, width: int, data: st.DataObject
) -> None:
    """Vectorised code treats the ends of an array differently; here that must not show, not even in the last bit."""
    inputs = [numbers(seed, rows, width), np.abs(numbers(seed + 1, rows, 1)), numbers(seed + 2, rows, width)]
    together = operation(*(torch.from_numpy(part.copy()) for part in inputs))
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True))
    apart = operation(*(torch.from_numpy(part[chosen]) for part in inputs))
    assert torch.equal(apart, together[chosen])


@pytest.mark.parametrize("width", [1, 16])
def test_no_rows_are_no_work(width: int) -> None:
    nothing, no_rows = torch.empty(0, width), torch.empty(0, dtype=torch.int64)
    table, state = torch.ones(3, width), torch.ones(3, 1)
    reference.scatter(table, no_rows, nothing)
    reference.apply_sgd(table, no_rows, nothing, LR)
    reference.apply_rowwise_adagrad(table, state, no_rows, nothing, LR, EPS)
    assert torch.equal(table, torch.ones(3, width))
    assert torch.equal(state, torch.ones(3, 1))
    assert reference.gather(table, no_rows).shape == (0, width)
    assert torch.equal(reference.sum_by_position(nothing, no_rows, 2), torch.zeros(2, width))
