"""The gradient of a layer's outputs: the native kernel against its twin, bit for bit, and the twin against NumPy."""

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.output_gradient import NativeOutputGradient, ReferenceOutputGradient, output_gradient_kernel
from tests.instruction_sets import each_instruction_set

SHAPES = [(64, 48), (33, 512), (20, 24), (16, 16), (5, 3), (40, 1), (1, 37), (0, 20)]
"""(B, O): whole blocks of 16 by 16, of 8 columns, samples or outputs left over, fewer than a block, no samples."""

needs_native = pytest.mark.skipif(
    not shared_library.is_built("output_gradient"), reason="_output_gradient.so is not built"
)


def inputs(samples: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A gradient over many orders of magnitude, and outputs of a ReLU."""
    generator = torch.Generator().manual_seed(samples * width)
    shape = (samples, width)
    gradient = torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-3, 3, generator=generator)
    return gradient, torch.randn(shape, generator=generator).relu()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_twin_masks_transposes_and_sums(shape: tuple[int, int], relu: bool) -> None:
    gradient, outputs = inputs(*shape)
    masked, transposed, sums = ReferenceOutputGradient().prepare(gradient, outputs if relu else None)
    expected = np.where(outputs.numpy() > 0, gradient.numpy(), np.float32(0)) if relu else gradient.numpy()
    np.testing.assert_array_equal(masked.numpy(), expected)
    np.testing.assert_array_equal(transposed.numpy(), expected.T)
    total = np.zeros(shape[1], np.float32)
    for row in expected:
        total += row
    np.testing.assert_array_equal(sums.numpy(), total)


@needs_native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_twins_bits(shape: tuple[int, int], relu: bool, threads: int) -> None:
    gradient, outputs = inputs(*shape)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = ReferenceOutputGradient().prepare(gradient, outputs if relu else None)
        for number in each_instruction_set("output_gradient"):
            found = NativeOutputGradient().prepare(gradient, outputs if relu else None)
            for twin, native in zip(expected, found, strict=True):
                assert native.is_contiguous()
                np.testing.assert_array_equal(twin.numpy().view(np.int32), native.numpy().view(np.int32), str(number))
    finally:
        torch.set_num_threads(before)


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


@needs_native
def test_native_code_refuses_what_it_would_misread() -> None:
    gradient, outputs = inputs(8, 4)
    kernel = NativeOutputGradient()
    with pytest.raises(ValueError, match=r"torch.float64 \(8, 4\) .*: native code needs contiguous float32 \(8, 4\)"):
        kernel.prepare(gradient.double(), outputs)
    with pytest.raises(ValueError, match=r"\(8, 3\) .*needs contiguous float32 \(8, 4\)"):
        kernel.prepare(gradient, outputs[:, :3].contiguous())


def test_the_reference_can_be_forced() -> None:
    assert isinstance(output_gradient_kernel("reference"), ReferenceOutputGradient)
