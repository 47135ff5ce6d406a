"""The gradient of a layer's outputs: the native kernel against its twin, bit for bit, and the twin against NumPy."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.dense.output_gradient import (
    FEW_INPUTS,
    NativeOutputGradient,
    OutputGradientKernel,
    ReferenceOutputGradient,
    output_gradient_kernel,
)
from tests.instruction_sets import each_instruction_set, each_way_to_store

SHAPES = [(64, 48), (33, 512), (20, 24), (16, 16), (5, 3), (40, 1), (1, 37), (0, 20), (200, 40), (2000, 20)]
"""(B, O): whole squares of 16 by 16, of 8 columns, samples or outputs left over, fewer than a square, no samples;
blocks of 64 samples and the rest of one, parts of one block and of two."""

FACTORS = [(200, 48, 13), (64, 16, 1), (65, 33, 7), (63, 512, 8), (130, 40, 32), (1, 3, 5), (70, 20, 0), (0, 20, 13)]
FACTORS += [(2000, 20, 3)]
"""(B, O, I): blocks of 64 samples and a last one, tiles of 32 outputs and less, eight factors and fewer, none; parts of
two blocks."""

needs_native = pytest.mark.skipif(
    not shared_library.is_built("output_gradient"), reason="_output_gradient.so is not built"
)


def inputs(samples: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient over many orders of magnitude, and outputs of a ReLU."""
    generator = torch.Generator().manual_seed(samples * width)
    shape = (samples, width)
    gradient = torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-3, 3, generator=generator)
    return gradient, torch.randn(shape, generator=generator).relu()


def assert_native_gives_the_twins_bits(
    compute: Callable[[OutputGradientKernel], tuple[torch.Tensor, ...]], threads: int
) -> None:
    """See that each instruction set gives the results of the twin, on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = compute(ReferenceOutputGradient())
        for number in each_instruction_set("output_gradient"):
            for way in each_way_to_store("output_gradient"):
                assert_same_bits(compute(NativeOutputGradient()), expected, f"instruction set {number}, {way}")
    finally:
        torch.set_num_threads(before)


def assert_same_bits(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], which: str) -> None:
    """See that tensors are contiguous and equal, with zeros of the same sign."""
    for native, twin in zip(found, expected, strict=True):
        assert native.is_contiguous()
        np.testing.assert_array_equal(twin.numpy().view(np.int32), native.numpy().view(np.int32), which)


def in_order(terms: np.ndarray) -> np.ndarray:
    """The sum over the samples: of each block of 64, of each part, of which there are 16 at most, of all."""
    of_part = max(1, -(-len(terms) // (64 * 16)))
    blocks = [_sum(terms[first : first + 64]) for first in range(0, len(terms), 64)]
    parts = [_sum(blocks[first : first + of_part]) for first in range(0, len(blocks), of_part)]
    return _sum([np.zeros_like(terms, shape=terms.shape[1:]), *parts])


def _sum(terms: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    total = np.zeros_like(terms[0])
    for term in terms:
        total += term
    return total


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_twin_masks_transposes_and_sums(shape: tuple[int, int], relu: bool) -> None:
    gradient, outputs = inputs(*shape)
    masked, transposed, sums = ReferenceOutputGradient().prepare(gradient, outputs if relu else None)
    expected = np.where(outputs.numpy() > 0, gradient.numpy(), np.float32(0)) if relu else gradient.numpy()
    np.testing.assert_array_equal(masked.numpy(), expected)
    np.testing.assert_array_equal(transposed.numpy(), expected.T)
    np.testing.assert_array_equal(sums.numpy(), in_order(expected))


@needs_native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_twins_bits(shape: tuple[int, int], relu: bool, threads: int) -> None:
    gradient, outputs = inputs(*shape)
    assert_native_gives_the_twins_bits(lambda kernel: kernel.prepare(gradient, outputs if relu else None), threads)


@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_the_transpose_the_rest_has_the_same_bits(shape: tuple[int, int], relu: bool, kernel: type) -> None:
    gradient, outputs = inputs(*shape)
    outputs[:1] = torch.nan
    given = gradient, outputs if relu else None
    masked, _, sums = kernel().prepare(*given)
    for found, expected in zip(kernel().mask(*given), (masked, sums), strict=True):
        np.testing.assert_array_equal(found.numpy().view(np.int32), expected.numpy().view(np.int32))


@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_in_place_everything_has_the_same_bits(shape: tuple[int, int], relu: bool, kernel: type) -> None:
    gradient, outputs = inputs(*shape)
    of_relu = outputs if relu else None
    for operation in (kernel().prepare, kernel().mask):
        expected, given = operation(gradient, of_relu), gradient.clone()
        found = operation(given, of_relu, in_place=True)
        assert found[0] is given
        assert_same_bits(found, expected, operation.__name__)


@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
@pytest.mark.parametrize("sample", [3, 32])
def test_an_output_of_nan_masks_nothing(kernel: type, sample: int) -> None:
    """As in torch; in whole blocks of 16 samples and in what is left over."""
    gradient, outputs = inputs(33, 37)
    outputs[sample] = torch.nan
    masked, transposed, _ = kernel().prepare(gradient, outputs)
    torch_masked = torch.ops.aten.threshold_backward(gradient, outputs, 0)
    np.testing.assert_array_equal(masked.numpy(), torch_masked.numpy())
    np.testing.assert_array_equal(masked[sample].numpy(), gradient[sample].numpy())
    np.testing.assert_array_equal(transposed.numpy(), masked.t().numpy())


def factors(samples: int, count: int) -> torch.Tensor:
    """Inputs of a layer."""
    return torch.randn(samples, count, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", FACTORS)
def test_the_twin_multiplies_block_by_block(shape: tuple[int, int, int], relu: bool) -> None:
    samples, width, count = shape
    gradient, outputs = inputs(samples, width)
    values = factors(samples, count)
    masked = np.where(outputs.numpy() > 0, gradient.numpy(), np.float32(0)) if relu else gradient.numpy()
    with_one = np.concatenate((values.numpy(), np.ones((samples, 1), np.float32)), axis=1)
    totals = in_order(masked[:, :, None] * with_one[:, None, :])
    found = ReferenceOutputGradient().multiply(gradient, outputs if relu else None, values)
    for tensor, expected in zip(found, (totals[:, :count], totals[:, count]), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), expected)


@needs_native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", FACTORS)
def test_every_instruction_set_multiplies_as_the_twin(shape: tuple[int, int, int], relu: bool, threads: int) -> None:
    samples, width, count = shape
    gradient, outputs = inputs(samples, width)
    outputs[2:3] = torch.nan
    given = gradient, outputs if relu else None, factors(samples, count)
    assert_native_gives_the_twins_bits(lambda kernel: kernel.multiply(*given), threads)


@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
def test_the_bias_has_the_same_bits_whatever_the_inputs(kernel: type) -> None:
    """Each input's product is a sum of its own; and without a product, too."""
    gradient, outputs = inputs(1500, 40)
    alone = kernel().multiply(gradient, outputs, factors(1500, 0))[1]
    assert torch.equal(alone, kernel().multiply(gradient, outputs, factors(1500, 13))[1])
    assert torch.equal(alone, kernel().prepare(gradient, outputs)[2])


@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
@pytest.mark.parametrize("sample", [3, 64])
def test_nan_reaches_the_weights(kernel: type, sample: int) -> None:
    """In a whole tile of outputs and in the rest of one: of a gradient all inputs, of an input all outputs."""
    gradient, outputs = inputs(65, 37)
    values = factors(65, 5)
    for_weight, for_bias = kernel().multiply(gradient, outputs, values.index_fill(0, torch.tensor([sample]), torch.nan))
    assert for_weight.isnan().all()
    assert not for_bias.isnan().any()
    outputs[sample] = torch.nan
    gradient[sample] = torch.nan
    for_weight, for_bias = kernel().multiply(gradient, outputs, values)
    assert for_weight.isnan().all()
    assert for_bias.isnan().all()


@pytest.mark.parametrize("default", [torch.float16, torch.float64])
@pytest.mark.parametrize("kernel", [ReferenceOutputGradient, pytest.param(NativeOutputGradient, marks=needs_native)])
def test_torchs_default_type_changes_nothing(kernel: type, default: torch.dtype) -> None:
    """A model may set it: native code would write float32 beyond memory of 16-bit numbers."""
    given, values = inputs(200, 33), factors(200, 7)

    def results() -> list[torch.Tensor]:
        return [*kernel().prepare(*given), *kernel().mask(*given), *kernel().multiply(*given, values)]

    expected = results()
    torch.set_default_dtype(default)
    try:
        found = results()
    finally:
        torch.set_default_dtype(torch.float32)
    assert [part.dtype for part in found] == [torch.float32] * 7
    assert all(torch.equal(part, value) for part, value in zip(found, expected, strict=True))


@needs_native
def test_native_code_refuses_inputs_that_it_would_misread() -> None:
    gradient, outputs = inputs(8, 4)
    kernel = NativeOutputGradient()
    with pytest.raises(ValueError, match=r"a layer of 33 inputs: native code multiplies 32 at most"):
        kernel.multiply(gradient, outputs, factors(8, FEW_INPUTS + 1))
    for wrong in (factors(7, 3), factors(3, 8).t(), factors(8, 3).double()):
        with pytest.raises(ValueError, match=r"inputs is .*: native code needs contiguous float32 \(8, [38]\)"):
            kernel.multiply(gradient, outputs, wrong)
    for wrong in (outputs[:, :3].contiguous(), outputs[:7]):
        with pytest.raises(ValueError, match=r"outputs is .*: native code needs contiguous float32 \(8, 4\)"):
            kernel.multiply(gradient, wrong, factors(8, 3))


@needs_native
def test_native_code_refuses_what_it_would_misread() -> None:
    gradient, outputs = inputs(8, 4)
    kernel = NativeOutputGradient()
    with pytest.raises(
        ValueError, match=r"gradient is torch.float64 .*: native code needs contiguous float32 \(8, 4\)"
    ):
        kernel.prepare(gradient.double(), outputs)
    with pytest.raises(ValueError, match=r"outputs is .*\(8, 3\) .*needs contiguous float32 \(8, 4\)"):
        kernel.prepare(gradient, outputs[:, :3].contiguous())


def test_the_reference_can_be_forced() -> None:
    assert isinstance(output_gradient_kernel("reference"), ReferenceOutputGradient)
