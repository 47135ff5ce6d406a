"""The interaction of DLRM as a differentiable function: what the top MLP reads.

Legend: `B` samples, `F` sparse features, `D` embedding width, `P` = F (F + 1) / 2 pairs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.kernels.dense.interaction import InteractionKernel, interaction_kernel
from bagpipe_hpc.kernels.plain_tensor import has_plain_rows

Interaction = Callable[[Tensor, Tensor], Tensor]
"""`(bottom [B, D], embeddings [B, F, D]) -> [B, D + P]`, differentiable: the bottom MLP's output, then the dot products
of every pair of vectors."""


def choose_interaction(backend: str, device: torch.device) -> Interaction:
    """The implementation for a device: a kernel on the CPU, torch's batched product elsewhere.

    Args:
        backend: `kernels.backend`.
        device: where the vectors are.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return kernel_interaction(interaction_kernel(backend)) if device.type == "cpu" else interaction_on(device)


def torch_interaction(bottom: Tensor, embeddings: Tensor) -> Tensor:
    """All products of a sample in one matrix, of which the half below the diagonal is kept; see `Interaction`."""
    return _interact(bottom, embeddings, _pairs(embeddings.shape[1] + 1, bottom.device))


def interaction_on(device: torch.device) -> Interaction:
    """`torch_interaction` for a device on which small operations are costly: it keeps the places of the pairs."""
    pairs: dict[int, Tensor] = {}

    def interaction(bottom: Tensor, embeddings: Tensor) -> Tensor:
        if (count := embeddings.shape[1] + 1) not in pairs:
            pairs[count] = _pairs(count, device)
        return _interact(bottom, embeddings, pairs[count])

    return interaction


def _pairs(count: int, device: torch.device) -> Tensor:
    """Where the pairs of so many vectors lie in their matrix, row after row, int64 `[P]`."""
    below = torch.tril_indices(count, count, offset=-1, device=device)
    return below[0] * count + below[1]


def _interact(bottom: Tensor, embeddings: Tensor, pairs: Tensor) -> Tensor:
    vectors = torch.cat((bottom.unsqueeze(1), embeddings), dim=1)
    products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
    return torch.cat((bottom, products.index_select(1, pairs)), dim=1)


def kernel_interaction(kernel: InteractionKernel) -> Interaction:
    """An interaction whose two directions a kernel computes; see `Interaction`."""

    def interaction(bottom: Tensor, embeddings: Tensor) -> Tensor:
        outputs: Tensor = _KernelInteraction.apply(bottom, embeddings, kernel)  # type: ignore[no-untyped-call]
        return outputs

    return interaction


class _KernelInteraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bottom: Tensor, embeddings: Tensor, kernel: InteractionKernel) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(bottom, embeddings)  # these, not copies: they lead on to what they were made of
        return kernel.forward(bottom.contiguous(), embeddings.contiguous())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph=True, for derivatives of these gradients
            # Views, so that gradients of one side do not go on to the other, of which it may have been made.
            vectors, needed = [vector.view_as(vector) for vector in ctx.saved_tensors], ctx.needs_input_grad
            wanted = [vector for vector, is_needed in zip(vectors, needed, strict=False) if is_needed]
            outputs = torch_interaction(*vectors)
            found = iter(torch.autograd.grad(outputs, wanted, gradients[0], create_graph=True))
            return *(next(found) if is_needed else None for is_needed in needed[:2]), None
        gradient = gradients[0] if has_plain_rows(gradients[0]) else gradients[0].contiguous()
        vectors = [vector.contiguous() for vector in ctx.saved_tensors]
        for_bottom, for_embeddings = ctx.kernel.backward(gradient, *vectors)
        return for_bottom, for_embeddings, None
