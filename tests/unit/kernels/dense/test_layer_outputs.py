"""A bias and a ReLU behind a product: the native kernel against its twin, bit for bit, and the twin against NumPy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.dense.layer_outputs import (
    LayerOutputsKernel,
    NativeLayerOutputs,
    ReferenceLayerOutputs,
    layer_outputs_kernel,
)
from tests.instruction_sets import each_instruction_set

SHAPES = [(64, 48), (33, 24), (5, 3), (40, 1), (1, 37), (0, 20), (3, 0), (3000, 200)]
"""(B, O): whole registers, what is left over, less than one, no samples, no outputs; so many numbers that threads share
them out."""

needs_native = pytest.mark.skipif(not shared_library.is_built("layer_outputs"), reason="_layer_outputs.so is not built")
both = pytest.mark.parametrize("kernel", [ReferenceLayerOutputs, pytest.param(NativeLayerOutputs, marks=needs_native)])


def layer(samples: int, width: int) -> tuple[Tensor, Tensor]:
    """Products and a bias over many orders of magnitude; some of their sums are 0."""
    generator = torch.Generator().manual_seed(samples + 7 * width)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-3, 3, generator=generator)

    products, bias = numbers(samples, width), numbers(width)
    products[::3] = -bias
    return products, bias


def finished(kernel: LayerOutputsKernel, products: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """What becomes of a copy of the products."""
    outputs = products.clone()
    kernel.finish(outputs, bias, relu)
    return outputs


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_twin_adds_the_bias_and_applies_the_relu(shape: tuple[int, int], relu: bool) -> None:
    products, bias = layer(*shape)
    sums = products.numpy() + bias.numpy()
    expected = np.where(sums > 0, sums, np.float32(0)) if relu else sums
    np.testing.assert_array_equal(finished(ReferenceLayerOutputs(), products, bias, relu).numpy(), expected)


@needs_native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_twins_bits(shape: tuple[int, int], relu: bool, threads: int) -> None:
    """Zeros have the same sign, too."""
    parts = layer(*shape)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = finished(ReferenceLayerOutputs(), *parts, relu).numpy().view(np.int32)
        for number in each_instruction_set("layer_outputs"):
            found = finished(NativeLayerOutputs(), *parts, relu).numpy().view(np.int32)
            np.testing.assert_array_equal(found, expected, f"instruction set {number}")
    finally:
        torch.set_num_threads(before)


@both
def test_a_relu_keeps_nan(kernel: type) -> None:
    """In whole registers and in what is left over."""
    products, bias = layer(9, 37)
    products[4] = torch.nan
    assert torch.equal(finished(kernel(), products, bias, True).isnan(), products.isnan())


@needs_native
def test_native_code_refuses_what_it_would_misread() -> None:
    kernel, (products, bias) = NativeLayerOutputs(), layer(8, 4)
    with pytest.raises(ValueError, match=r"bias is .*\(3,\) .*: native code needs contiguous float32 \(4,\)"):
        kernel.finish(products, bias[:3], True)
    with pytest.raises(ValueError, match=r"products is .*: native code needs contiguous float32 \(4, 8\)"):
        kernel.finish(products.t(), torch.zeros(8), True)
    with pytest.raises(ValueError, match=r"products is torch.float64 .* needs contiguous float32 \(8, 4\)"):
        kernel.finish(products.double(), bias, True)


def test_the_reference_can_be_forced() -> None:
    assert isinstance(layer_outputs_kernel("reference"), ReferenceLayerOutputs)
