"""Native code treats NaN, infinities, subnormal numbers and zeros as its torch twin does, for shapes that are drawn.

Legend: `B` samples, `R` rows of a table, `U` distinct rows, `D` width.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.dense.finite import FiniteKernel, NativeFinite, ReferenceFinite
from bagpipe_hpc.kernels.dense.interaction import InteractionKernel, NativeInteraction, ReferenceInteraction
from bagpipe_hpc.kernels.dense.layer_outputs import LayerOutputsKernel, NativeLayerOutputs, ReferenceLayerOutputs
from bagpipe_hpc.kernels.dense.output_gradient import (
    FEW_INPUTS,
    NativeOutputGradient,
    OutputGradientKernel,
    ReferenceOutputGradient,
)
from bagpipe_hpc.kernels.rows.native import NativeRowOperations
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.row_operations import RowOperations
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS
from tests.drawing import share_of
from tests.instruction_sets import each_instruction_set
from tests.row_optimizers import BUILT_IN, row_optimizer

LIBRARIES = ("row_operations", "interaction", "layer_outputs", "output_gradient", "finite")
pytestmark = pytest.mark.skipif(not all(map(shared_library.is_built, LIBRARIES)), reason="native code was not built")

HARD = np.asarray([0.0, -0.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], dtype=np.float32)
SEEDS = st.integers(0, 2**32)
WIDTHS = st.integers(1, 20) | st.integers(1, 300) | st.sampled_from([16, 32, 48, 64, 96, 128, 256])
THREADS = st.sampled_from([1, 3])
OPTIMIZERS = {name: row_optimizer(name) for name in BUILT_IN} | {
    "nesterov": row_optimizer("momentum", nesterov=True),
    "ftrl": row_optimizer("ftrl", l1=0.3, l2=0.1),
}
"""By the name of its kernel."""

properties = settings(max_examples=share_of(60), deadline=None)


class Draws:
    """Numbers drawn from a seed, the same ones at each call with the same arguments."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def numbers(self, which: int, *shape: int) -> Tensor:
        """Over 24 orders of magnitude, of both signs; of fifty one is hard. For each `which` others."""
        rng = np.random.default_rng((self._seed, which))
        values = (rng.standard_normal(shape) * 10.0 ** rng.uniform(-12, 12, shape)).astype(np.float32)
        return torch.from_numpy(np.where(rng.random(shape) < 0.02, rng.choice(HARD, shape), values))

    def integers(self, which: int, below: int, count: int) -> Tensor:
        """Int32 `[count]`; half of them are of the first sixteenth."""
        rng = np.random.default_rng((self._seed, which))
        return torch.from_numpy((rng.random(count) ** 4 * below).astype(np.int32))

    def slots(self, rows: int, count: int) -> Tensor:
        """Distinct ones, int32 `[count]`."""
        return torch.from_numpy(np.random.default_rng(self._seed).permutation(rows)[:count].astype(np.int32))

    def layout(self, look_ups: int, *, is_scaled: bool) -> PoolLayout:
        """Up to twelve bags, some of them empty, some very long."""
        rng = np.random.default_rng(self._seed)
        cuts = np.sort(rng.integers(0, look_ups + 1, rng.integers(0, 12)))
        starts = np.concatenate(([0], cuts, [look_ups])).astype(np.int32)
        outputs = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        scales = self.numbers(99, look_ups) if is_scaled else None
        return PoolLayout(torch.from_numpy(starts), torch.from_numpy(outputs), scales)


def assert_alike(native: Iterator[Tensor], twin: Iterator[Tensor]) -> None:
    """Bit for bit, but for which NaN: the processor takes one of the operands'."""
    for found, expected in zip(native, twin, strict=True):
        assert found.dtype == expected.dtype == torch.float32
        assert torch.equal(found.isnan(), expected.isnan())
        numbers = ~expected.isnan()
        np.testing.assert_array_equal(found[numbers].view(torch.int32), expected[numbers].view(torch.int32))


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Torch computes with so many."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", UPDATE_KERNELS)
@properties
@given(SEEDS, st.integers(1, 60), WIDTHS, THREADS, st.data())
def test_updates(name: str, seed: int, rows: int, width: int, threads: int, data: st.DataObject) -> None:
    draws, used = Draws(seed), data.draw(st.integers(0, rows))
    gradients, slots = draws.numbers(0, used, width), draws.slots(rows, used)

    def updated(operations: RowOperations) -> Iterator[Tensor]:
        weights = draws.numbers(1, rows, width)
        shapes = UPDATE_KERNELS[name].state_shapes(rows, width)
        state = [draws.numbers(2 + part, *shape) for part, shape in enumerate(shapes)]
        if name not in ("momentum", "nesterov"):
            state[-1:] = [part.abs() for part in state[-1:]]
        update_rows(operations, OPTIMIZERS[name], weights, state, slots, gradients, step=3)
        yield from (weights, *state)

    for _ in each_instruction_set("row_operations"):
        assert_alike(updated(NativeRowOperations(threads)), updated(ReferenceRowOperations()))


@properties
@given(SEEDS, st.integers(1, 60), WIDTHS, st.integers(0, 400), st.booleans(), THREADS)
def test_sums_and_bags(seed: int, rows: int, width: int, look_ups: int, is_scaled: bool, threads: int) -> None:
    draws = Draws(seed)
    slots, positions = draws.slots(rows, rows), draws.integers(1, rows, look_ups)
    layout = draws.layout(look_ups, is_scaled=is_scaled)

    def results(operations: RowOperations) -> Iterator[Tensor]:
        table, gradients = draws.numbers(2, rows, width), draws.numbers(3, layout.outputs_count, width)
        yield operations.sum_by_position(draws.numbers(4, look_ups, width), positions, rows)
        yield operations.pool(table, slots, positions, layout)
        yield operations.sum_pooled(gradients, positions, rows, None, layout)

    for _ in each_instruction_set("row_operations"):
        assert_alike(results(NativeRowOperations(threads)), results(ReferenceRowOperations()))


@pytest.mark.usefixtures("threads")
@properties
@given(SEEDS, st.integers(0, 40), st.integers(0, 30), st.integers(1, 70))
def test_interaction(seed: int, samples: int, features: int, width: int) -> None:
    draws = Draws(seed)
    bottom, embeddings = draws.numbers(0, samples, width), draws.numbers(1, samples, features, width)
    gradients = draws.numbers(2, samples, width + features * (features + 1) // 2)

    def results(kernel: InteractionKernel) -> Iterator[Tensor]:
        yield kernel.forward(bottom, embeddings)
        yield from kernel.backward(gradients, bottom, embeddings)

    for _ in each_instruction_set("interaction"):
        assert_alike(results(NativeInteraction()), results(ReferenceInteraction()))


@pytest.mark.usefixtures("threads")
@properties
@given(SEEDS, st.integers(0, 1100), st.integers(1, 100), st.integers(0, FEW_INPUTS), st.booleans())
def test_gradients_of_a_layer(seed: int, samples: int, width: int, inputs: int, has_relu: bool) -> None:
    draws = Draws(seed)
    outputs = draws.numbers(1, samples, width).relu() if has_relu else None
    gradient, values = draws.numbers(0, samples, width), draws.numbers(2, samples, inputs)

    def results(kernel: OutputGradientKernel) -> Iterator[Tensor]:
        yield from kernel.prepare(gradient, outputs)
        yield from kernel.mask(gradient, outputs)
        yield from kernel.multiply(gradient, outputs, values)

    for _ in each_instruction_set("output_gradient"):
        assert_alike(results(NativeOutputGradient()), results(ReferenceOutputGradient()))


@pytest.mark.usefixtures("threads")
@properties
@given(SEEDS, st.integers(0, 1100), st.integers(1, 300), st.booleans())
def test_outputs_of_a_layer(seed: int, samples: int, width: int, has_relu: bool) -> None:
    draws = Draws(seed)
    products, bias = draws.numbers(0, samples, width), draws.numbers(1, width)

    def results(kernel: LayerOutputsKernel) -> Iterator[Tensor]:
        outputs = products.clone()
        kernel.finish(outputs, bias, has_relu)
        yield outputs

    for _ in each_instruction_set("layer_outputs"):
        assert_alike(results(NativeLayerOutputs()), results(ReferenceLayerOutputs()))


@properties
@given(SEEDS, st.integers(1, 500), st.integers(0, 300), st.lists(st.integers(1, 70), min_size=1, max_size=3), THREADS)
def test_what_is_not_finite(seed: int, rows: int, asked: int, widths: list[int], threads: int) -> None:
    draws = Draws(seed)
    tables = [draws.numbers(which, rows, width) for which, width in enumerate(widths)]
    for table in tables:  # hard numbers are left in a part of the rows
        table[draws.slots(rows, rows - 1 - seed % rows)] = 1e-45
    slots = draws.integers(9, rows, asked)
    answers: list[Callable[[FiniteKernel], int]] = [
        lambda kernel: int(kernel.first_row(tables, slots)),
        lambda kernel: int(kernel.first_tensor(tables)),
    ]
    for answer in answers:
        assert answer(NativeFinite(threads)) == answer(ReferenceFinite())
