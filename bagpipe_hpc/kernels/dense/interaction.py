"""DLRM's interaction on the CPU: dot products of every pair of a sample's vectors, forward and backward.

Native code and its torch twin give the same bits: every sum starts with 0 and runs from left to right, and each product
is rounded before it is added.

Legend: `B` samples, `F` sparse features, `P` = F (F + 1) / 2 pairs of F + 1 vectors, `D` embedding width. Vector 0 is
the bottom MLP's output; pair (i, j), j < i, is number i (i - 1) / 2 + j. Tensors are float32, contiguous, on the CPU;
rows of gradients may have gaps between them.
"""

from ctypes import c_int64, c_void_p
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.plain_tensor import check_plain, check_rows


class InteractionKernel(Protocol):
    """The two directions."""

    def forward(self, bottom: Tensor, embeddings: Tensor) -> Tensor:
        """What the top MLP reads, the bottom MLP's output and then the pairs: `[B, D]`, `[B, F, D]` to `[B, D + P]`."""

    def backward(self, gradients: Tensor, bottom: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of `bottom` and `embeddings`, from those of `forward`'s result: `[B, D + P]`."""


def interaction_kernel(backend: str) -> InteractionKernel:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeInteraction() if use_native(backend, "interaction") else ReferenceInteraction()


class ReferenceInteraction:
    """Plain torch, one column or vector after the other: the definition of the sums' order."""

    def forward(self, bottom: Tensor, embeddings: Tensor) -> Tensor:
        """Add the products of one column after the other."""
        columns = torch.cat((bottom.unsqueeze(1), embeddings), dim=1).permute(2, 0, 1)
        products = columns.new_zeros(columns.shape[1], columns.shape[2], columns.shape[2])
        for column in columns:
            products += column.unsqueeze(2) * column.unsqueeze(1)
        first, second = _pairs(columns.shape[2], columns.device)
        return torch.cat((bottom, products[:, first, second]), dim=1)

    def backward(self, gradients: Tensor, bottom: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Spread the pairs' gradients over both of their features, in plain torch."""
        samples, features, width = embeddings.shape
        first, second = _pairs(features + 1, embeddings.device)
        of_pairs = gradients.new_zeros(samples, features + 1, features + 1)
        of_pairs[:, first, second] = gradients[:, width:]
        of_pairs[:, second, first] = gradients[:, width:]
        sums = gradients.new_zeros(samples, features + 1, width)
        for number, vector in enumerate((bottom, *embeddings.unbind(1))):
            terms = of_pairs[:, :, number, None] * vector.unsqueeze(1)
            sums[:, :number] += terms[:, :number]
            sums[:, number + 1 :] += terms[:, number + 1 :]
        return gradients[:, :width] + sums[:, 0], sums[:, 1:].contiguous()


def _pairs(vectors: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Both vectors of each pair, int64 `[P]`."""
    first, second = torch.tril_indices(vectors, vectors, offset=-1, device=device)
    return first, second


class NativeInteraction:
    """C++ (csrc/interaction.cpp), on as many threads as torch uses."""

    def __init__(self) -> None:
        library = shared_library.load("interaction")
        sizes = [c_int64] * 3
        self._forward = library.interaction_forward
        self._forward.argtypes = [*sizes, *[c_void_p] * 3, c_int64]
        self._forward.restype = None
        self._backward = library.interaction_backward
        self._backward.argtypes = [*sizes, c_void_p, c_int64, *[c_void_p] * 4, c_int64]
        self._backward.restype = None

    def forward(self, bottom: Tensor, embeddings: Tensor) -> Tensor:
        """In native code, as many samples at a time as a register holds."""
        samples, features, width = _checked_shape(bottom, embeddings)
        outputs = bottom.new_empty(samples, _output_width(features, width))
        addresses = (tensor.data_ptr() for tensor in (bottom, embeddings, outputs))
        self._forward(samples, features, width, *addresses, torch.get_num_threads())
        return outputs

    def backward(self, gradients: Tensor, bottom: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """In native code, a sample at a time."""
        samples, features, width = _checked_shape(bottom, embeddings)
        check_rows(gradients, (samples, _output_width(features, width)), name="gradients")
        results = torch.empty_like(bottom), torch.empty_like(embeddings)
        own, *others = (tensor.data_ptr() for tensor in (gradients, bottom, embeddings, *results))
        self._backward(samples, features, width, own, gradients.stride(0), *others, torch.get_num_threads())
        return results


def _output_width(features: int, width: int) -> int:
    return width + features * (features + 1) // 2


def _checked_shape(bottom: Tensor, embeddings: Tensor) -> tuple[int, int, int]:
    samples, features, width = embeddings.shape
    check_plain(bottom, (samples, width), name="bottom")
    check_plain(embeddings, (samples, features, width), name="embeddings")
    return samples, features, width
