"""Forward and backward of one slice: the same code in the trainers and in the reference, so that the bits agree.

Legend: `n` samples of the slice, `N` dense features, `F` sparse features, `D` embedding width.
"""

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.loss import click_loss


def forward_backward(
    model: nn.Module, dense: Tensor, labels: Tensor, rows: Tensor, batch_samples: int
) -> tuple[Tensor, Tensor]:
    """Add a slice's gradients to the model's and return those of its look-ups.

    A weight or a look-up on which the loss does not depend gets a gradient of zeros: what waits for the gradients of
    all weights, to sum them over the trainers, waits for that one too.

    Args:
        model: dense half; the `.grad` fields of its trainable weights are added to.
        dense: float32 `[n, N]`; n may be 0.
        labels: float32 `[n]`.
        rows: gathered rows, float32 `[n, F, D]`.
        batch_samples: samples of the global batch; the loss is their mean.

    Returns:
        The slice's share of the loss, a scalar on the device, and the gradient of each look-up, float32 `[n * F, D]`.
    """
    rows.requires_grad_()
    loss = click_loss(model(dense, rows), labels, batch_samples)
    torch.autograd.backward(loss)
    untouched = [weight for weight in model.parameters() if weight.requires_grad and weight.grad is None]
    if untouched:
        torch.autograd.backward(untouched, [torch.zeros_like(weight) for weight in untouched])
    gradients = rows.grad if rows.grad is not None else torch.zeros_like(rows)
    return loss.detach(), gradients.flatten(0, 1)


@torch.no_grad()
def predict(model: nn.Module, dense: Tensor, rows: Tensor) -> Tensor:
    """Logits float32 `[n]` of a slice; arguments as for `forward_backward`."""
    logits: Tensor = model(dense, rows)
    return logits
