"""The gradient of a linear layer's outputs, made ready on the CPU for the products of its backward pass.

Native code and its torch twin give the same bits: sums start with 0 and run over the samples in order.

Legend: `B` samples, `O` outputs of the layer. Tensors are float32, contiguous, on the CPU.
"""

from ctypes import c_int64, c_void_p
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.plain_tensor import check_plain


class OutputGradientKernel(Protocol):
    """One operation, with the transpose and without."""

    def mask(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mask and sum a gradient: the first and the last of what `prepare` returns."""

    def prepare(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Mask, transpose and sum a gradient.

        Args:
            gradient: `[B, O]`.
            outputs: `[B, O]` of the layer's ReLU; where they are 0, the gradient is masked; where they are NaN, it
                is not, so that a NaN reaches the weights. None: no ReLU.

        Returns:
            The masked gradient `[B, O]` (without ReLU `gradient` itself), its transpose `[O, B]`, and its sum over the
            samples `[O]`.
        """


def output_gradient_kernel(backend: str) -> OutputGradientKernel:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeOutputGradient() if use_native(backend, "output_gradient") else ReferenceOutputGradient()


class ReferenceOutputGradient:
    """Plain torch: the definition."""

    def mask(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mask and sum one after the other."""
        masked = gradient if outputs is None else torch.where(outputs <= 0, 0.0, gradient)
        samples, width = masked.shape
        sums = torch.zeros(1, width).index_add_(0, torch.zeros(samples, dtype=torch.int64), masked)
        return masked, sums[0]

    def prepare(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Mask, sum and transpose one after the other."""
        masked, sums = self.mask(gradient, outputs)
        return masked, masked.t().contiguous(), sums


class NativeOutputGradient:
    """C++ (csrc/output_gradient.cpp): one pass, on as many threads as torch uses."""

    def __init__(self) -> None:
        self._run = shared_library.load("output_gradient").output_gradient
        self._run.argtypes = [c_int64, c_int64, *[c_void_p] * 5, c_int64]
        self._run.restype = None

    def mask(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor]:
        """In one pass of native code."""
        return self._pass(gradient, outputs, None)

    def prepare(self, gradient: Tensor, outputs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """In one pass of native code."""
        transposed = torch.empty(gradient.shape[::-1])
        masked, sums = self._pass(gradient, outputs, transposed)
        return masked, transposed, sums

    def _pass(self, gradient: Tensor, outputs: Tensor | None, transposed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The masked gradient and its sums; its transpose goes to `transposed [O, B]`."""
        samples, width = gradient.shape
        check_plain(gradient, (samples, width))
        masked = gradient
        outputs_address = masked_address = None
        if outputs is not None:
            check_plain(outputs, (samples, width))
            masked = torch.empty_like(gradient)
            outputs_address, masked_address = outputs.data_ptr(), masked.data_ptr()
        sums = torch.empty(width)
        self._run(
            samples,
            width,
            gradient.data_ptr(),
            outputs_address,
            masked_address,
            None if transposed is None else transposed.data_ptr(),
            sums.data_ptr(),
            torch.get_num_threads(),
        )
        return masked, sums
