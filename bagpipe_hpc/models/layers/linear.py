"""Linear layers with an optional ReLU, and what multiplies their matrices: torch's BLAS or oneDNN.

torch multiplies float32 matrices with MKL on x86, which takes its AVX2 code on AMD's processors: less than half of the
rate of oneDNN's AVX-512 code, which every x86 build of torch holds as well (`python -m benchmarks dense`). On Intel's
MKL is the faster one. So `kernels.linear = "auto"` measures. On the CPU the rest of either layer is native: behind
MKL's products the bias and the ReLU in one pass, the ReLU's backward pass and the bias's gradient in one go, and the
weight's gradient in a first layer with few inputs.

Legend: `B` samples, `I` inputs, `O` outputs of a layer.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.dense.layer_outputs import LayerOutputsKernel, layer_outputs_kernel
from bagpipe_hpc.kernels.dense.output_gradient import FEW_INPUTS, OutputGradientKernel, output_gradient_kernel
from bagpipe_hpc.models.layers.layer_weights import LateWeight, LayerWeights

LinearLayer = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""`(inputs [B, I], weight [O, I], bias [O], relu) -> [B, O]`, differentiable in the first three.

Where the inputs are what another such layer's ReLU gave, their hooks may see the gradient of what went into the ReLU in
place of that of what came out of it: 0 where it gave 0.
"""

_FEW_INPUTS = 32
"""Up to so many inputs, oneDNN computes the transpose of the weights' gradient three times as fast as the gradient."""
_LINE = 16
"""Numbers of a cache line: MKL is slower by a third where the rows of a result do not begin with one."""


def usable_implementations(device: torch.device) -> tuple[str, ...]:
    """What `kernels.linear = "auto"` may choose on a device; oneDNN was tried on x86 alone."""
    if _runs_onednn(device) and platform.machine() in ("x86_64", "AMD64"):
        return ("onednn", "torch")
    return ("torch",)


def check_implementation(implementation: str, device: torch.device) -> None:
    """Check that a device can compute as `kernels.linear` says.

    Raises:
        ConfigError: oneDNN is asked for where it cannot run.
    """
    if implementation == "onednn" and not _runs_onednn(device):
        raise ConfigError(
            f"kernels.linear = 'onednn': this torch cannot use it on {device}; set kernels.linear=auto or torch"
        )


def _runs_onednn(device: torch.device) -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and available


def torch_linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """A linear layer as torch computes it; see `LinearLayer`."""
    outputs = torch.nn.functional.linear(inputs, weight, bias)
    return torch.relu(outputs) if relu else outputs


def check_bfloat16(device: torch.device) -> None:
    """Check that a device multiplies bfloat16 numbers by instructions of its own.

    Raises:
        ConfigError: it does not, so that bfloat16 would be slower than float32.
    """
    if device.type == "cuda":
        is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        is_fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if not is_fast:
        raise ConfigError(
            f"model.precision = 'bfloat16': {device} here has no bfloat16 products (a CPU needs AVX512-BF16 or AMX); "
            "use float32"
        )


def bfloat16_linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """A linear layer on numbers rounded to bfloat16, of any inputs; its outputs are bfloat16, see `LinearLayer`."""
    return torch_linear(inputs.bfloat16(), weight.bfloat16(), bias.bfloat16(), relu)


@dataclass(frozen=True)
class LinearKernels:
    """What computes a layer on the CPU beside its large products.

    Attributes:
        outputs: adds biases and applies ReLUs behind products of torch's BLAS.
        gradient: masks and sums gradients, and multiplies them with few inputs.
    """

    outputs: LayerOutputsKernel
    gradient: OutputGradientKernel


def linear_kernels(backend: str) -> LinearKernels:
    """Choose the implementations, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return LinearKernels(layer_outputs_kernel(backend), output_gradient_kernel(backend))


def onednn_linear(kernels: LinearKernels, layer_weights: LayerWeights | None = None) -> LinearLayer:
    """A linear layer through oneDNN, forward and backward, float32 on the CPU; see `LinearLayer`.

    Args:
        kernels: compute what is no large product.
        layer_weights: is told which weights are read, and may put off their gradients, which keep their bits; None:
            nobody is told.
    """
    return _layer(_OneDnn(kernels), layer_weights)


def blas_linear(kernels: LinearKernels, layer_weights: LayerWeights | None = None) -> LinearLayer:
    """A linear layer through torch's BLAS, forward and backward, float32 on the CPU; as `onednn_linear`."""
    return _layer(_Blas(kernels), layer_weights)


def _layer(products: "_Products", layer_weights: LayerWeights | None) -> LinearLayer:
    def linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        own = layer_weights.use(weight, bias) if layer_weights else None
        if not inputs.numel():  # oneDNN has no empty matrices
            return torch_linear(inputs, weight, bias, relu)
        token = own.token if own else None
        source = inputs.grad_fn if isinstance(inputs.grad_fn, _Linear._backward_cls) else None
        outputs: Tensor = _Linear.apply(inputs, weight, bias, token, relu, products, own, source)  # type: ignore[no-untyped-call]
        return outputs

    return linear


def onednn_forward(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """The forward half of `onednn_linear`, with the same bits, in operations that `torch.export` can write down."""
    outputs = _product(inputs, weight, bias)
    return torch.relu(outputs) if relu else outputs


def blas_forward(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """The forward half of `blas_linear`, as `onednn_forward`."""
    outputs = inputs @ weight.t() + bias
    return torch.relu(outputs) if relu else outputs


class _Products(Protocol):
    """The matrix products of a layer.

    Attributes:
        kernels: compute what is no large product.
    """

    kernels: LinearKernels

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        """The outputs, `[B, O]`."""

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of the outputs before the ReLU, as `for_inputs` and as `for_weight` take it, and the bias's.

        Args:
            gradient: of the outputs, contiguous.
            outputs: what the ReLU gave; None without one.
            in_place: what `for_inputs` takes is `gradient` itself, masked.
        """

    def for_inputs(self, prepared: Tensor, weight: Tensor) -> Tensor:
        """The gradient of the inputs, `[B, I]`."""

    def for_weight(self, prepared: Tensor, inputs: Tensor) -> Tensor:
        """The gradient of the weight, contiguous `[O, I]`."""


_NO_MORE = (None,) * 4
"""Gradients of what `_Linear` takes behind its tensors."""


class _Prepared:
    """What `_Products.prepare` gives, perhaps before its layer's turn.

    The layer behind makes a gradient ready in place, while nobody else has it: that spares a result of its size. It is
    of use if autograd hands on that very tensor, unchanged: no sum with what comes from another use of the outputs. As
    long as this refers to the tensor, autograd does not add to it in place, and a hook that does is noticed.

    Args:
        masked: the gradient before the ReLU.
        transposable: the same as `_Products.for_weight` takes it.
        for_bias: its sum over the samples.
    """

    def __init__(self, masked: Tensor, transposable: Tensor, for_bias: Tensor) -> None:
        self.masked, self.transposable, self.for_bias = masked, transposable, for_bias
        self._version = masked._version

    def is_of(self, gradient: Tensor) -> bool:
        """Whether this was made of a gradient, as it is now."""
        return gradient is self.masked and gradient._version == self._version


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        token: Tensor | None,  # noqa: ARG004 - what the late gradient of the weight comes through
        relu: bool,
        products: _Products,
        late: LateWeight | None,
        source: Any,
    ) -> Tensor:
        """`source`: the node of the layer that gave the inputs, None if they come from elsewhere."""
        outputs = products.forward(inputs, weight, bias, relu)
        ctx.products, ctx.late = products, late
        ctx.source = source if source and source.masks else None
        ctx.is_first = inputs.shape[1] <= FEW_INPUTS and not ctx.needs_input_grad[0]
        ctx.masks, ctx.prepared = relu and not ctx.is_first, None
        ctx.save_for_backward(inputs, weight, outputs if relu else None)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        products: _Products = ctx.products
        late: LateWeight | None = ctx.late
        inputs, weight, outputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # with create_graph=True, for derivatives of these gradients
            if late:
                raise ConfigError("create_graph=True: a late gradient has none: set train.weight_gradients=at_once")
            masked = gradients[0] if outputs is None else torch.where(outputs <= 0, 0, gradients[0])
            return masked @ weight, masked.t() @ inputs, masked.sum(0), None, *_NO_MORE
        gradient = gradients[0].contiguous()
        if ctx.is_first:
            own, for_bias = products.kernels.gradient.multiply(gradient, outputs, inputs.contiguous())
            if late:  # it comes late, too, though it costs hardly more than the bias's, which is needed now
                return None, None, for_bias, late.leave(lambda: own), *_NO_MORE
            return None, own, for_bias, None, *_NO_MORE
        prepared: _Prepared | None = ctx.prepared
        ctx.prepared = None
        if not (prepared and prepared.is_of(gradients[0])):
            prepared = _Prepared(*products.prepare(gradient, outputs))
        for_inputs = products.for_inputs(prepared.masked, weight) if ctx.needs_input_grad[0] else None
        for_weight = partial(products.for_weight, prepared.transposable, inputs)
        if ctx.source and for_inputs is not None and for_inputs.is_contiguous():
            ctx.source.prepared = _Prepared(*products.prepare(for_inputs, inputs, in_place=True))
        if late:
            return for_inputs, None, prepared.for_bias, late.leave(for_weight), *_NO_MORE
        return for_inputs, for_weight(), prepared.for_bias, None, *_NO_MORE


class _Blas:
    def __init__(self, kernels: LinearKernels) -> None:
        self.kernels = kernels

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        outputs = inputs @ weight.t()  # torch's own layer copies the bias to all samples first
        self.kernels.outputs.finish(outputs, bias, relu)
        return outputs

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        masked, for_bias = self.kernels.gradient.mask(gradient, outputs, in_place=in_place)
        return masked, masked, for_bias

    def for_inputs(self, prepared: Tensor, weight: Tensor) -> Tensor:
        """`prepared [B, O]` times `weight [O, I]`; each row of the result begins with a line, perhaps behind a gap."""
        samples, inputs = len(prepared), weight.shape[1]
        rows = prepared.new_empty(samples, -(-inputs // _LINE) * _LINE)
        return torch.mm(prepared, weight, out=rows[:, :inputs])

    def for_weight(self, prepared: Tensor, inputs: Tensor) -> Tensor:
        """The transpose of `prepared [B, O]` times `inputs [B, I]`."""
        if inputs.shape[1] % _LINE:
            return (inputs.t() @ prepared).t().contiguous()
        return prepared.t() @ inputs


class _OneDnn:
    def __init__(self, kernels: LinearKernels) -> None:
        self.kernels = kernels

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        outputs = _product(inputs, weight, bias)
        # oneDNN's own ReLU makes 0 of NaN: a model that has diverged would look healthy.
        return outputs.relu_() if relu else outputs

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.kernels.gradient.prepare(gradient, outputs, in_place=in_place)

    def for_inputs(self, prepared: Tensor, weight: Tensor) -> Tensor:
        return _product(prepared, weight.t())

    def for_weight(self, prepared: Tensor, inputs: Tensor) -> Tensor:
        """`prepared [O, B]`, transposed, times `inputs [B, I]`."""
        if inputs.shape[1] <= _FEW_INPUTS < prepared.shape[0]:
            return _product(inputs.t(), prepared).t().contiguous()
        return _product(prepared, inputs.t())


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """`left [n, k]` times the transpose of `right [m, k]`, plus `bias [m]`.

    `right` may have any strides; a `left` that is not contiguous is copied.
    """
    # With "none" the list between it and "" is not used; torch.export can write down [None], but not an empty list.
    result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [None], "")
    return result
