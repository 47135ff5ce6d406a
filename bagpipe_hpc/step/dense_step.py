"""Forward and backward of one slice: the same code in the trainers and in the reference, so that the bits agree."""

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.dlrm import click_loss


def forward_backward(
    model: nn.Module, dense: Tensor, labels: Tensor, embeddings: Tensor, batch_samples: int
) -> tuple[Tensor, Tensor]:
    """Add a slice's gradients to the model's and return those of its embedding look-ups.

    Args:
        model: dense half; its `.grad` fields are added to.
        dense: float32 `[n, dense features]`; n may be 0.
        labels: float32 `[n]`.
        embeddings: gathered rows, float32 `[n, F, D]`.
        batch_samples: samples of the global batch; the loss is their mean.

    Returns:
        The slice's share of the loss, a scalar on the device, and the gradient of each look-up, float32 `[n * F, D]`.
    """
    embeddings.requires_grad_()
    loss = click_loss(model(dense, embeddings), labels, batch_samples)
    torch.autograd.backward(loss)
    assert embeddings.grad is not None, "the logits depend on every look-up"
    return loss.detach(), embeddings.grad.flatten(0, 1)


@torch.no_grad()
def predict(model: nn.Module, dense: Tensor, embeddings: Tensor) -> Tensor:
    """Logits float32 `[n]` of a slice; arguments as for `forward_backward`."""
    logits: Tensor = model(dense, embeddings)
    return logits
