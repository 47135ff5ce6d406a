"""Linear layers on the CPU against float64, and which implementation runs where."""

import platform
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.dense.layer_outputs import ReferenceLayerOutputs
from bagpipe_hpc.kernels.dense.output_gradient import FEW_INPUTS, ReferenceOutputGradient
from bagpipe_hpc.models.layers.linear import (
    LinearKernels,
    LinearLayer,
    bfloat16_linear,
    blas_forward,
    blas_linear,
    check_bfloat16,
    check_implementation,
    linear_kernels,
    onednn_forward,
    onednn_linear,
    torch_linear,
    usable_implementations,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHAPES = [(1024, 13, 512), (37, 367, 64), (5, 64, 16), (128, 256, 1), (1, 1, 1), (3, 32, 33)]
NATIVE, TWINS = linear_kernels("auto"), LinearKernels(ReferenceLayerOutputs(), ReferenceOutputGradient())
LAYERS = [onednn_linear(NATIVE), blas_linear(NATIVE), torch_linear]
OF_TWINS = [onednn_linear(TWINS), blas_linear(TWINS)]


def layer_inputs(samples: int, inputs: int, outputs: int) -> tuple[torch.Tensor, ...]:
    """Inputs, weight, bias and the gradient of the outputs."""
    generator = torch.Generator().manual_seed(samples + inputs)
    shapes = ((samples, inputs), (outputs, inputs), (outputs,), (samples, outputs))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def run(layer: LinearLayer, parts: tuple[torch.Tensor, ...], relu: bool) -> list[torch.Tensor]:
    """Outputs, and the gradients of inputs, weight and bias."""
    leaves = [part.clone().requires_grad_() for part in parts[:3]]
    outputs = layer(*leaves, relu)
    outputs.backward(parts[3].to(outputs.dtype))
    return [outputs.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_those_of_the_formula(
    layer: LinearLayer, relu: bool, shape: tuple[int, int, int]
) -> None:
    parts = layer_inputs(*shape)
    inputs, weight, bias, gradient = (part.double() for part in parts)
    outputs = inputs @ weight.t() + bias
    if relu:
        gradient = gradient * (outputs > 0)
        outputs = outputs.clamp_min(0)
    expected = [outputs, gradient @ weight, gradient.t() @ inputs, gradient.sum(0)]
    for found, value in zip(run(layer, parts, relu), expected, strict=True):
        assert found.is_contiguous()
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), value.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", [*LAYERS, *OF_TWINS, bfloat16_linear])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(37, 40, 33), (5, 64, 16)])
def test_nan_goes_through(layer: LinearLayer, relu: bool, shape: tuple[int, int, int]) -> None:
    """Forward and backward, also through the ReLU: a model that has diverged must not look healthy.

    With AMX, oneDNN's bfloat16 products also bring it to the sample before, where they are sums over 33 outputs
    (https://github.com/uxlfoundation/oneDNN/issues/5717).
    """
    samples, inputs, outputs = shape
    parts = layer_inputs(*shape)
    parts[0][3, 2] = torch.nan
    found, for_inputs, for_weight, for_bias = run(layer, parts, relu)
    in_sample = torch.arange(samples).eq(3)[:, None]
    assert torch.equal(found.isnan(), in_sample.expand(samples, outputs))
    assert torch.equal(for_weight.isnan(), torch.arange(inputs).eq(2).expand(outputs, inputs))
    assert not for_bias.isnan().any()
    assert not for_inputs.isnan().any()
    parts = layer_inputs(*shape)
    parts[0][3, 2] = torch.nan
    parts[3][3] = torch.nan
    found, for_inputs, for_weight, for_bias = run(layer, parts, relu)
    assert for_bias.isnan().all()
    assert for_weight.isnan().all()
    for_others = for_inputs[torch.arange(samples) != 3]
    assert for_inputs[3].isnan().all()
    assert not for_others.isnan().any() or (layer is bfloat16_linear and torch.cpu._is_amx_tile_supported())


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_exported_model_predicts_what_was_trained(relu: bool, shape: tuple[int, int, int]) -> None:
    parts = layer_inputs(*shape)
    for layer, exported in ((onednn_linear(NATIVE), onednn_forward), (blas_linear(NATIVE), blas_forward)):
        assert torch.equal(run(layer, parts, relu)[0], exported(*parts[:3], relu))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(37, 367, 64), (5, 64, 16)])
def test_twins_give_the_bits_of_native_code(relu: bool, shape: tuple[int, int, int]) -> None:
    parts = layer_inputs(*shape)
    for native, twin in zip(LAYERS, OF_TWINS, strict=False):
        for found, expected in zip(run(native, parts, relu), run(twin, parts, relu), strict=True):
            assert torch.equal(found, expected)


def run_first(layer: LinearLayer, parts: tuple[torch.Tensor, ...], relu: bool) -> list[torch.Tensor]:
    """Gradients of weight and bias of a layer whose inputs are data."""
    inputs, weight, bias, gradient = parts
    weight, bias = (part.clone().requires_grad_() for part in (weight, bias))
    layer(inputs, weight, bias, relu).backward(gradient)
    assert inputs.grad is None
    return [weight.grad, bias.grad]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_first_layer_are_those_of_the_formula(
    layer: LinearLayer, relu: bool, shape: tuple[int, int, int]
) -> None:
    """Of few inputs and of many; also where a column of a wider matrix is no input."""
    wide = layer_inputs(shape[0], shape[1] + 1, shape[2])
    parts = wide[0][:, 1:], wide[1][:, 1:].contiguous(), *wide[2:]
    inputs, weight, bias, gradient = (part.double() for part in parts)
    if relu:
        gradient = gradient * (inputs @ weight.t() + bias > 0)
    for found, value in zip(run_first(layer, parts, relu), [gradient.t() @ inputs, gradient.sum(0)], strict=True):
        assert found.is_contiguous()
        np.testing.assert_allclose(found.numpy(), value.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] <= FEW_INPUTS])
def test_both_libraries_give_a_first_layer_of_few_inputs_the_same_bits(shape: tuple[int, int, int]) -> None:
    """Those of native code and its twin; without a ReLU, whose zeros are theirs."""
    first, *others = (run_first(layer, layer_inputs(*shape), False) for layer in [*LAYERS[:2], *OF_TWINS])
    for other in others:
        assert all(map(torch.equal, first, other))


@pytest.mark.parametrize(("inputs", "wants_gradient"), [(FEW_INPUTS, False), (FEW_INPUTS + 1, False), (13, True)])
def test_few_inputs_that_are_data_are_multiplied_in_the_pass_that_masks(inputs: int, wants_gradient: bool) -> None:
    calls = []

    class Noted(ReferenceOutputGradient):
        def multiply(self, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append("multiply")
            return super().multiply(*given)

    parts = layer_inputs(20, inputs, 8)
    layer = blas_linear(LinearKernels(ReferenceLayerOutputs(), Noted()))
    (run if wants_gradient else run_first)(layer, parts, True)
    assert calls == ["multiply"] * (inputs <= FEW_INPUTS and not wants_gradient)


WIDTHS = [13, 64, 100, 48, 33]
"""Of layers one behind the other, the first of few inputs; rows of 100 numbers do not all begin with a line."""

Watch = Callable[[torch.Tensor], torch.Tensor]
"""Takes the outputs of a layer; what it returns is added to the loss, number by number."""


def chain_gradients(layer: LinearLayer, watch: Watch, *, is_cut: bool, inputs_too: bool) -> list[torch.Tensor]:
    """Gradients of all weights and biases, and of the inputs.

    Args:
        layer: computes all layers.
        watch: sees the outputs of each.
        is_cut: no layer sees that it follows another one.
        inputs_too: the first layer's inputs want a gradient, too.
    """
    generator = torch.Generator().manual_seed(7)
    shapes = [shape for inputs, outputs in pairwise(WIDTHS) for shape in ((outputs, inputs), (outputs,))]
    leaves = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    first = torch.randn(70, WIDTHS[0], generator=generator).requires_grad_(inputs_too)
    values, loss = first, torch.zeros(())
    for weight, bias in zip(leaves[::2], leaves[1::2], strict=True):
        outputs = layer(values, weight, bias, True)
        loss = loss + watch(outputs).sum()
        values = outputs.clone() if is_cut else outputs
    (loss + values.square().sum()).backward()
    return [leaf.grad for leaf in [*leaves, *([first] if inputs_too else [])]]


def nothing(outputs: torch.Tensor) -> torch.Tensor:
    """Only the next layer uses them."""
    return outputs.new_zeros(())


def another_use(outputs: torch.Tensor) -> torch.Tensor:
    """The next layer is not the only one to use them."""
    return outputs


def doubling_in_place(outputs: torch.Tensor) -> torch.Tensor:
    """A hook writes to their gradient."""

    def double(gradient: torch.Tensor) -> None:
        gradient.mul_(2)

    outputs.register_hook(double)
    return outputs.new_zeros(())


def halving(outputs: torch.Tensor) -> torch.Tensor:
    """A hook gives another gradient."""
    outputs.register_hook(lambda gradient: gradient / 2)
    return outputs.new_zeros(())


@pytest.mark.parametrize("inputs_too", [False, True])
@pytest.mark.parametrize("watch", [nothing, another_use, doubling_in_place, halving])
@pytest.mark.parametrize("layer", [*LAYERS[:2], *OF_TWINS])
def test_layers_one_behind_the_other_give_the_bits_of_each_alone(
    layer: LinearLayer, watch: Watch, inputs_too: bool
) -> None:
    """Of gradients that the layer behind has masked in place, and where autograd hands on others."""
    found, expected = (chain_gradients(layer, watch, is_cut=is_cut, inputs_too=inputs_too) for is_cut in (False, True))
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(("make", "in_place"), [(blas_linear, 2), (onednn_linear, 3)])
def test_gradients_between_layers_are_masked_in_place(
    make: Callable[[LinearKernels], LinearLayer], in_place: int
) -> None:
    """By MKL not those whose rows have gaps; but for the last layer's, which comes from elsewhere."""
    calls = []

    class Noted(ReferenceOutputGradient):
        def mask(
            self, gradient: torch.Tensor, outputs: torch.Tensor | None, *, in_place: bool = False
        ) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append(in_place)
            return super().mask(gradient, outputs, in_place=in_place)

    layer = make(LinearKernels(ReferenceLayerOutputs(), Noted()))
    chain_gradients(layer, nothing, is_cut=False, inputs_too=True)
    assert calls.count(True) == in_place
    assert len(calls) == len(WIDTHS) - 1
    calls.clear()
    chain_gradients(layer, nothing, is_cut=False, inputs_too=False)
    assert calls.count(True) == in_place - 1
    assert len(calls) == len(WIDTHS) - 2


@pytest.mark.parametrize("inputs", [367, 368, 33])
def test_rows_of_torchs_input_gradients_begin_with_a_line(inputs: int) -> None:
    """Its library is slower by a third where they do not; the bits are the same."""
    leaf, weight, bias, gradient = layer_inputs(37, inputs, 64)
    seen: list[torch.Tensor] = []
    given = leaf.requires_grad_() * 1
    given.register_hook(seen.append)
    blas_linear(NATIVE)(given, weight, bias, False).backward(gradient)
    assert torch.equal(seen[0], gradient @ weight)
    assert seen[0].stride(0) % 16 == 0
    assert seen[0].stride(0) - inputs < 16


@pytest.mark.parametrize("layer", LAYERS)
def test_without_samples_gradients_are_zero(layer: LinearLayer) -> None:
    outputs, for_inputs, for_weight, for_bias = run(layer, layer_inputs(0, 13, 16), True)
    assert outputs.shape == (0, 16)
    assert for_inputs.shape == (0, 13)
    assert not for_weight.any()
    assert not for_bias.any()


@pytest.mark.slow
def test_every_process_gets_the_same_bits() -> None:
    """What equality of a distributed run with its reference rests on: one shape, one result."""
    program = (
        "import torch, sys; torch.set_num_threads(1)\n"
        "from tests.unit.models.layers.test_linear import LAYERS, SHAPES, layer_inputs, run\n"
        "padding = torch.empty(int(sys.argv[1]))  # other addresses\n"
        "for shape in SHAPES:\n"
        "    for layer in LAYERS[:2]:\n"
        "        for part in run(layer, layer_inputs(*shape), True):\n"
        "            sys.stdout.buffer.write(part.numpy().tobytes())\n"
    )
    other = subprocess.run([sys.executable, "-c", program, "17"], check=True, capture_output=True).stdout
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        parts = [part for shape in SHAPES for layer in LAYERS[:2] for part in run(layer, layer_inputs(*shape), True)]
    finally:
        torch.set_num_threads(threads)
    own = b"".join(part.numpy().tobytes() for part in parts)
    assert len(own) > 2_000_000
    assert own == other


def test_auto_may_choose_onednn_on_x86_cpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert usable_implementations(CPU) == ("onednn", "torch")
    assert usable_implementations(GPU) == ("torch",)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert usable_implementations(CPU) == ("torch",)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert usable_implementations(CPU) == ("torch",)


def test_onednn_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(ConfigError, match=r"kernels\.linear = 'onednn': this torch cannot use it on cuda:0; set"):
        check_implementation("onednn", GPU)
    for implementation in ("auto", "torch"):
        check_implementation(implementation, GPU)
    check_implementation("onednn", CPU)


@pytest.mark.parametrize(("relu", "largest_error"), [(False, 0.01), (True, 0.1)])
def test_bfloat16_is_float32_with_fewer_digits(relu: bool, largest_error: float) -> None:
    """Outputs have 8 bits, gradients of float32 inputs and weights are float32; near 0 a ReLU may decide otherwise."""
    parts = layer_inputs(64, 48, 32)
    exact, rounded = run(torch_linear, parts, relu), run(bfloat16_linear, parts, relu)
    assert rounded[0].dtype == torch.bfloat16
    for found, value in zip(rounded[1:], exact[1:], strict=True):
        assert found.dtype == torch.float32
        assert not torch.equal(found, value)
        assert (found - value).norm() <= largest_error * value.norm()


def test_bfloat16_is_refused_where_it_would_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    check_bfloat16(CPU)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    with pytest.raises(ConfigError, match=r"model\.precision = 'bfloat16': cpu here has no bfloat16 products"):
        check_bfloat16(CPU)
