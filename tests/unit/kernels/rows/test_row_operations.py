"""Row operations equal plain loops to the last bit, and a row's result does not depend on where it stands."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.row_operations import RowOperations, row_operations
from bagpipe_hpc.rows.optimizers.adagrad import Adagrad, AdagradSettings, RowwiseAdagrad
from bagpipe_hpc.rows.optimizers.adam import Adam, AdamSettings, RowwiseAdam
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer
from bagpipe_hpc.rows.optimizers.exact import sum_of_columns
from bagpipe_hpc.rows.optimizers.ftrl import FTRL
from bagpipe_hpc.rows.optimizers.sgd import SGD, Momentum
from tests.drawing import share_of

LR, EPS, BETA1, BETA2, STEP = 0.005, 1e-8, 0.9, 0.999, 7
BETA, L1, L2 = 0.25, 0.5, 0.125
ROWS = 12
F32 = np.float32

Floats = NDArray[np.float32]

needs_native = pytest.mark.skipif(not shared_library.is_built(native.LIBRARY), reason="_row_operations.so is not built")
implementations = pytest.mark.parametrize(
    "operations",
    [
        pytest.param(ReferenceRowOperations(), id="reference"),
        pytest.param(row_operations("auto", torch.device("cpu")), id="native", marks=needs_native),
    ],
)


def numbers(seed: int, *shape: int) -> Floats:
    """Float32 numbers of both signs over twelve orders of magnitude, so that any other order of a sum shows."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)).astype(F32)


def some_slots(seed: int, count: int) -> NDArray[np.int32]:
    """Distinct slots of a table of `ROWS` rows."""
    return np.random.default_rng(seed).permutation(ROWS)[:count].astype(np.int32)


def rounded_fold(values: Floats) -> np.float32:
    """`sum_of_columns` of one row: halves, each sum rounded to float32."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        values = np.asarray(
            [F32(a + b) for a, b in zip(values, values[half:], strict=False)] + [*values[len(values) - half : half]],
            dtype=F32,
        )
    return values[0]


@implementations
def test_gather_copies_rows(operations: RowOperations) -> None:
    table = torch.from_numpy(numbers(1, 6, 3))
    copied = operations.gather(table, torch.tensor([4, 0, 4], dtype=torch.int32))
    assert torch.equal(copied, torch.stack([table[4], table[0], table[4]]))
    copied.zero_()
    assert table[4].any()


@implementations
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, ROWS), st.integers(1, 20))
def test_look_ups_read_the_row_of_their_position(
    operations: RowOperations, seed: int, look_ups: int, count: int, width: int
) -> None:
    table, slots = numbers(seed, ROWS, width), some_slots(seed, count)
    positions = np.random.default_rng(seed).integers(0, count, look_ups, dtype=np.int32)
    found = operations.gather_look_ups(*map(torch.from_numpy, (table, slots, positions)))
    np.testing.assert_array_equal(found.numpy(), table[slots[positions]])


@implementations
@given(st.integers(0, 2**32), st.integers(0, ROWS), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.booleans())
def test_records_are_the_columns_side_by_side(
    operations: RowOperations, seed: int, count: int, widths: list[int], is_wide: bool
) -> None:
    if is_wide:
        widths = [48, *widths]
    tables, slots = [numbers(seed + part, ROWS, width) for part, width in enumerate(widths)], some_slots(seed, count)
    columns = [torch.from_numpy(table.copy()) for table in tables]
    together = np.concatenate(tables, axis=1)
    records = operations.gather_records(columns, torch.from_numpy(slots))
    assert records.is_contiguous()
    np.testing.assert_array_equal(records.numpy(), together[slots])
    together[slots] = numbers(seed + 9, count, sum(widths))
    operations.scatter_records(columns, torch.from_numpy(slots), torch.from_numpy(together[slots]))
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part in columns], axis=1), together)


@implementations
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 8), st.integers(1, 9))
def test_sums_run_from_left_to_right(
    operations: RowOperations, seed: int, look_ups: int, count: int, width: int
) -> None:
    gradients = numbers(seed, look_ups, width)
    positions = np.random.default_rng(seed).integers(0, count, look_ups, dtype=np.int32)
    expected = np.zeros((count, width), dtype=F32)
    for position, gradient in zip(positions, gradients, strict=True):
        for column in range(width):
            expected[position, column] = F32(expected[position, column] + gradient[column])
    found = operations.sum_by_position(torch.from_numpy(gradients), torch.from_numpy(positions), count)
    np.testing.assert_array_equal(found.numpy(), expected)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 70))
def test_columns_are_folded_by_halves(seed: int, rows: int, width: int) -> None:
    values = numbers(seed, rows, width)
    found = sum_of_columns(torch.from_numpy(values))
    np.testing.assert_array_equal(found.numpy(), np.asarray([[rounded_fold(row)] for row in values]))
    np.testing.assert_allclose(
        found.numpy()[:, 0], values.astype(np.float64).sum(1), rtol=0, atol=1e-6 * np.abs(values).sum()
    )


def test_folding_leaves_its_input_alone() -> None:
    values = torch.from_numpy(numbers(1, 3, 5))
    before = values.clone()
    sum_of_columns(values)
    assert torch.equal(values, before)


def plain_sgd(weights: Floats, gradient: Floats) -> None:
    """One row, in place; every assignment and operator of these formulas rounds to float32."""
    weights -= gradient * F32(LR)


def plain_rowwise_adagrad(weights: Floats, accumulator: Floats, gradient: Floats) -> None:
    accumulator += rounded_fold(gradient * gradient) / F32(len(gradient))
    weights -= gradient / (np.sqrt(accumulator) + F32(EPS)) * F32(LR)


def plain_adagrad(weights: Floats, accumulator: Floats, gradient: Floats) -> None:
    accumulator += gradient * gradient
    weights -= gradient / (np.sqrt(accumulator) + F32(EPS)) * F32(LR)


def plain_adam(weights: Floats, first: Floats, second: Floats, gradient: Floats) -> None:
    step_size, root_scale = F32(LR / (1 - BETA1**STEP)), F32(1 / (1 - BETA2**STEP) ** 0.5)
    first[:] = first * F32(BETA1) + gradient * F32(1 - BETA1)
    second[:] = second * F32(BETA2) + gradient * gradient * F32(1 - BETA2)
    weights -= first / (np.sqrt(second) * root_scale + F32(EPS)) * step_size


def plain_rowwise_adam(weights: Floats, first: Floats, second: Floats, gradient: Floats) -> None:
    step_size, root_scale = F32(LR / (1 - BETA1**STEP)), F32(1 / (1 - BETA2**STEP) ** 0.5)
    first[:] = first * F32(BETA1) + gradient * F32(1 - BETA1)
    second[:] = second * F32(BETA2) + rounded_fold(gradient * gradient) / F32(len(gradient)) * F32(1 - BETA2)
    weights -= first / (np.sqrt(second) * root_scale + F32(EPS)) * step_size


def plain_momentum(weights: Floats, velocity: Floats, gradient: Floats) -> None:
    velocity[:] = velocity * F32(BETA1) + gradient
    weights -= velocity * F32(LR)


def plain_nesterov(weights: Floats, velocity: Floats, gradient: Floats) -> None:
    velocity[:] = velocity * F32(BETA1) + gradient
    weights -= (velocity * F32(BETA1) + gradient) * F32(LR)


def plain_ftrl(weights: Floats, squares: Floats, z: Floats, gradient: Floats) -> None:
    threshold, least = F32(LR * L1), F32(BETA + LR * L2)
    z[:] = np.where(squares == 0, weights * F32(-BETA), z)
    old_roots = np.sqrt(squares)
    squares += gradient * gradient
    z += gradient * F32(LR) - (np.sqrt(squares) - old_roots) * weights
    free = (np.sign(z) * threshold - z) / (np.sqrt(squares) + least)
    weights[:] = np.where(squares == 0, weights, np.where(np.abs(z) > threshold, free, F32(0)))


UPDATES: dict[str, tuple[RowOptimizer, Callable[..., None]]] = {
    "sgd": (SGD(SGD.Settings(LR)), plain_sgd),
    "rowwise_adagrad": (RowwiseAdagrad(AdagradSettings(LR, EPS)), plain_rowwise_adagrad),
    "adagrad": (Adagrad(AdagradSettings(LR, EPS)), plain_adagrad),
    "adam": (Adam(AdamSettings(LR, EPS, (BETA1, BETA2))), plain_adam),
    "rowwise_adam": (RowwiseAdam(AdamSettings(LR, EPS, (BETA1, BETA2))), plain_rowwise_adam),
    "momentum": (Momentum(Momentum.Settings(LR, BETA1)), plain_momentum),
    "nesterov": (Momentum(Momentum.Settings(LR, BETA1, nesterov=True)), plain_nesterov),
    "ftrl": (FTRL(FTRL.Settings(LR, BETA, L1, L2)), plain_ftrl),
}
"""For each update: the optimizer, and its formula for one row in NumPy."""


def state_widths(update: str, width: int) -> list[int]:
    return [part.width(width) for part in UPDATES[update][0].state]


def apply(operations: RowOperations, update: str, tables: Sequence[Tensor], slots: Tensor, gradients: Tensor) -> None:
    """By the native kernel where `operations` have one, else by the optimizer's own formula."""
    weights, *state = tables
    update_rows(operations, UPDATES[update][0], weights, state, slots, gradients, STEP)


updates = pytest.mark.parametrize("update", UPDATES)


def tables_of(update: str, seed: int, width: int) -> list[Floats]:
    """Weights and state of `ROWS` rows; the state is not negative."""
    state = [np.abs(numbers(seed + part, ROWS, columns)) for part, columns in enumerate(state_widths(update, width), 1)]
    return [numbers(seed, ROWS, width), *state]


@updates
@implementations
@given(st.integers(0, 2**32), st.integers(0, ROWS), st.one_of(st.integers(1, 20), st.sampled_from((48, 64, 100))))
def test_an_update_is_its_formula(operations: RowOperations, update: str, seed: int, rows: int, width: int) -> None:
    """On the named rows; the others stay."""
    formula = UPDATES[update][1]
    tables, gradients, slots = tables_of(update, seed, width), numbers(seed + 9, rows, width), some_slots(seed, rows)
    tensors = [torch.from_numpy(table.copy()) for table in tables]
    apply(operations, update, tensors, torch.from_numpy(slots), torch.from_numpy(gradients))
    for slot, gradient in zip(slots, gradients, strict=True):
        formula(*(table[slot] for table in tables), gradient)
    for tensor, table in zip(tensors, tables, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), table)


@updates
@implementations
def test_a_gradient_of_zero_is_no_step(operations: RowOperations, update: str) -> None:
    """On a state of 0 it is divided by eps, not by 0."""
    weights, *state = tables = [torch.ones(2, 4), *(torch.zeros(2, columns) for columns in state_widths(update, 4))]
    apply(operations, update, tables, torch.tensor([0], dtype=torch.int32), torch.zeros(1, 4))
    assert torch.equal(weights, torch.ones(2, 4))
    assert update == "ftrl" or not any(part.any() for part in state)  # whose z stands for the weights


def summed_twice(operations: RowOperations, seed: int, width: int, chosen: NDArray[np.int32]) -> Tensor:
    """Two gradients for each chosen row, apart from each other."""
    gradients = np.concatenate([numbers(seed + part, ROWS, width)[chosen] for part in (0, 1)])
    places = np.tile(np.arange(len(chosen), dtype=np.int32), 2)
    return operations.sum_by_position(torch.from_numpy(gradients), torch.from_numpy(places), len(chosen))


def updated(update: str) -> Callable[[RowOperations, int, int, NDArray[np.int32]], Tensor]:
    """Weights and state of the chosen rows after an update of them, in a table where they stand first."""

    def run(operations: RowOperations, seed: int, width: int, chosen: NDArray[np.int32]) -> Tensor:
        tensors = [torch.from_numpy(table[chosen]) for table in tables_of(update, seed, width)]
        gradients = torch.from_numpy(numbers(seed + 9, ROWS, width)[chosen])
        apply(operations, update, tensors, torch.arange(len(chosen), dtype=torch.int32), gradients)
        return torch.cat(tensors, 1)

    return run


PLACED: dict[str, Any] = {"sum": summed_twice} | {name: updated(name) for name in UPDATES}


@pytest.mark.parametrize("operation", PLACED)
@implementations
@settings(max_examples=share_of(30))
@given(st.integers(0, 2**32), st.integers(1, 70), st.lists(st.integers(0, ROWS - 1), min_size=1, unique=True))
def test_a_rows_result_does_not_depend_on_its_place(
    operations: RowOperations, operation: str, seed: int, width: int, chosen: list[int]
) -> None:
    """Vectorised code treats the ends of an array differently; here that must not show, not even in the last bit."""
    run = PLACED[operation]
    together = run(operations, seed, width, np.arange(ROWS, dtype=np.int32))
    apart = run(operations, seed, width, np.asarray(chosen, dtype=np.int32))
    assert torch.equal(apart, together[chosen])


@implementations
@pytest.mark.parametrize("width", [1, 16])
def test_no_rows_are_no_work(operations: RowOperations, width: int) -> None:
    nothing, no_rows = torch.empty(0, width), torch.empty(0, dtype=torch.int32)
    table, state = torch.ones(3, width), torch.ones(3, 1)
    operations.scatter_records([table, state], no_rows, torch.empty(0, width + 1))
    for update in UPDATES:
        tables = [torch.ones(3, columns) for columns in (width, *state_widths(update, width))]
        apply(operations, update, tables, no_rows, nothing)
        assert all(part.eq(1).all() for part in tables), update
    assert torch.equal(table, torch.ones(3, width))
    assert torch.equal(state, torch.ones(3, 1))
    assert operations.gather(table, no_rows).shape == (0, width)
    assert operations.gather_look_ups(table, no_rows, no_rows).shape == (0, width)
    assert operations.gather_records([table, state], no_rows).shape == (0, width + 1)
    assert torch.equal(operations.sum_by_position(nothing, no_rows, 2), torch.zeros(2, width))
