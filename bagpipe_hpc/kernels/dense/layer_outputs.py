"""What follows a linear layer's matrix product on the CPU: the bias and the ReLU, in one pass.

torch copies a bias to all samples before the product, which reads it again, and takes another pass for the ReLU.

Native code and its torch twin give the same bits. Legend: `B` samples, `O` outputs of the layer.
"""

from ctypes import c_int32, c_int64, c_void_p
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.plain_tensor import check_plain


class LayerOutputsKernel(Protocol):
    """The one operation."""

    def finish(self, products: Tensor, bias: Tensor, relu: bool) -> None:
        """Add a bias to products, and apply the ReLU, in place.

        Args:
            products: of inputs and weight, float32 `[B, O]`, contiguous, on the CPU.
            bias: float32 `[O]`, likewise.
            relu: whether there is a ReLU. It leaves NaN as it is: a model that has diverged must not look healthy.
        """


def layer_outputs_kernel(backend: str) -> LayerOutputsKernel:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeLayerOutputs() if use_native(backend, "layer_outputs") else ReferenceLayerOutputs()


class ReferenceLayerOutputs:
    """Plain torch: the definition."""

    def finish(self, products: Tensor, bias: Tensor, relu: bool) -> None:
        """One after the other."""
        products += bias
        if relu:
            products.masked_fill_(products <= 0, 0.0)


class NativeLayerOutputs:
    """C++ (csrc/layer_outputs.cpp), on as many threads as torch uses."""

    def __init__(self) -> None:
        self._finish = shared_library.load("layer_outputs").finish_outputs
        self._finish.argtypes = [*[c_int64] * 2, c_void_p, c_int32, c_void_p, c_int64]
        self._finish.restype = None

    def finish(self, products: Tensor, bias: Tensor, relu: bool) -> None:
        """In one pass of native code."""
        samples, width = products.shape
        check_plain(products, (samples, width), name="products")
        check_plain(bias, (width,), name="bias")
        self._finish(samples, width, bias.data_ptr(), relu, products.data_ptr(), torch.get_num_threads())
