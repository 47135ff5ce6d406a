"""Linear layers with an optional ReLU, and who multiplies their matrices: torch's BLAS or oneDNN.

torch multiplies float32 matrices with MKL on x86, which takes its AVX2 code on AMD's processors: less than half of the
rate of oneDNN's AVX-512 code, which every x86 build of torch holds as well (`python -m benchmarks dense`). On Intel's
MKL is the faster one. So `kernels.linear = "auto"` measures. On the CPU the rest of both is native: ReLU in place, its
backward pass and the bias's gradient in one go.

Legend: `B` samples, `I` inputs, `O` outputs of a layer.
"""

import platform
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.output_gradient import OutputGradientKernel

LinearLayer = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""`(inputs [B, I], weight [O, I], bias [O], relu) -> [B, O]`, differentiable in the first three."""

_FEW_INPUTS = 32
"""Up to here oneDNN is three times faster at the transpose of the weights' gradient than at the gradient itself."""
_LINE = 16
"""Numbers of a cache line: MKL is slower by a third at a result whose rows do not begin with one."""


def usable_implementations(device: torch.device) -> tuple[str, ...]:
    """What `kernels.linear = "auto"` may choose on a device; oneDNN was tried on x86 alone."""
    if _runs_onednn(device) and platform.machine() in ("x86_64", "AMD64"):
        return ("onednn", "torch")
    return ("torch",)


def check_implementation(implementation: str, device: torch.device) -> None:
    """See that a device can compute as `kernels.linear` says.

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
    """See that a device multiplies bfloat16 numbers by instructions of its own.

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


def onednn_linear(kernel: OutputGradientKernel) -> LinearLayer:
    """A linear layer through oneDNN, forward and backward, float32 on the CPU; see `LinearLayer`."""
    return _layer(_OneDnn(kernel))


def blas_linear(kernel: OutputGradientKernel) -> LinearLayer:
    """A linear layer through torch's BLAS, forward and backward, float32 on the CPU; see `LinearLayer`.

    Its outputs have the bits of `torch_linear`.
    """
    return _layer(_Blas(kernel))


def _layer(products: "_Products") -> LinearLayer:
    def linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        if not inputs.numel():  # oneDNN has no empty matrices
            return torch_linear(inputs, weight, bias, relu)
        outputs: Tensor = _Linear.apply(inputs, weight, bias, relu, products)  # type: ignore[no-untyped-call]
        return outputs

    return linear


def onednn_forward(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """The forward half of `onednn_linear`, with the same bits, in operations that `torch.export` can write down."""
    outputs = _product(inputs, weight, bias)
    return torch.relu(outputs) if relu else outputs


class _Products(Protocol):
    """The matrix products of a layer."""

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The outputs before the ReLU, `[B, O]`."""

    def backward(
        self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor, weight: Tensor, *, for_inputs: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Gradients of inputs (None unless `for_inputs`), weight and bias; `gradient`, `outputs` as for `prepare`."""


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool, products: _Products) -> Tensor:
        outputs = products.forward(inputs, weight, bias)
        if relu:
            outputs.relu_()  # not oneDNN's own, which makes 0 of NaN: a model that has diverged would look healthy
        ctx.products = products
        ctx.save_for_backward(inputs, weight, outputs if relu else None)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, outputs = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        found = ctx.products.backward(gradient, outputs, inputs, weight, for_inputs=ctx.needs_input_grad[0])
        return *found, None, None


class _Blas:
    def __init__(self, kernel: OutputGradientKernel) -> None:
        self._kernel = kernel

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.linear(inputs, weight, bias)

    def backward(
        self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor, weight: Tensor, *, for_inputs: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        masked, for_bias = self._kernel.mask(gradient, outputs)
        return masked @ weight if for_inputs else None, self._weight_gradient(masked, inputs), for_bias

    @staticmethod
    def _weight_gradient(masked: Tensor, inputs: Tensor) -> Tensor:
        """The transpose of `masked [B, O]` times `inputs [B, I]`, contiguous `[O, I]`."""
        if inputs.shape[1] % _LINE:
            return (inputs.t() @ masked).t().contiguous()
        return masked.t() @ inputs


class _OneDnn:
    def __init__(self, kernel: OutputGradientKernel) -> None:
        self._kernel = kernel

    def forward(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return _product(inputs, weight, bias)

    def backward(
        self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor, weight: Tensor, *, for_inputs: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        masked, transposed, for_bias = self._kernel.prepare(gradient, outputs)
        return _product(masked, weight.t()) if for_inputs else None, self._weight_gradient(transposed, inputs), for_bias

    @staticmethod
    def _weight_gradient(transposed: Tensor, inputs: Tensor) -> Tensor:
        """`transposed [O, B]` times `inputs [B, I]`, contiguous `[O, I]`."""
        if inputs.shape[1] <= _FEW_INPUTS < transposed.shape[0]:
            return _product(inputs.t(), transposed).t().contiguous()
        return _product(transposed, inputs.t())


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """`left [n, k]` times the transpose of `right [m, k]`, plus `bias [m]`.

    `right` may have any strides; a `left` that is not contiguous is copied.
    """
    # What stands between "none" and "" is of no meaning there; torch.export can write a list of None, but no empty one.
    result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [None], "")
    return result
