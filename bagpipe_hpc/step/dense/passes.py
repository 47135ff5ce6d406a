"""Forward and backward of one slice: the same code in the trainers and in the reference, so that the bits agree.

Legend: `n` samples of the slice, `N` dense features, `K` labels, `O` embeddings of a width, `D` that width.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.complete_gradients import noticing
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.sums.gradient_groups import trainable

TakesGradients = Callable[[int, Tensor], None]
"""Is given a width D, and the gradients of all embeddings of that width, float32 `[O, D]`."""


def forward_backward(
    model: nn.Module,
    dense: Tensor,
    labels: Tensor,
    embeddings: Embeddings,
    batch_samples: int,
    sample_weights: Tensor | None = None,
) -> tuple[Tensor, dict[int, Tensor]]:
    """Train a slice by the cross-entropy of clicks: add its gradients to the model's, return those of its embeddings.

    Args:
        model: dense half; the `.grad` fields of its trainable weights are added to.
        dense: float32 `[n, N]`; n may be 0.
        labels: float32 `[n]`; `[n, K]` where there are several.
        embeddings: of the slice; tensors without a history.
        batch_samples: samples of the global batch; the loss is their mean.
        sample_weights: of the losses of the samples, float32 `[n]`; None for 1.

    Returns:
        The slice's share of the loss, a scalar on the device, and the gradients of the embeddings as of `backward`.
    """
    logits = model(dense, embeddings.requiring_gradients())
    loss = click_loss(logits, labels, batch_samples, sample_weights)
    return loss.detach(), backward([*model.parameters()], embeddings, loss)


def backward(
    weights: Sequence[Tensor], embeddings: Embeddings, loss: Tensor, take: TakesGradients | None = None
) -> dict[int, Tensor]:
    """Add the gradients of a loss to the model's and return those of the embeddings.

    A weight or an embedding on which the loss does not depend gets a gradient of zeros: what waits for the gradients of
    all weights, to sum them over the trainers, waits for that one too.

    Args:
        weights: of the dense half; the `.grad` fields of those that require gradients are added to.
        embeddings: of the slice; they require gradients.
        loss: the slice's share, a scalar.
        take: is given those of each width while the pass goes on, as soon as they are complete; but not those of a
            width of which the loss leaves some embeddings out.

    Returns:
        The gradients of the embeddings of each width D, one tensor behind the other, float32 `[O, D]`.
    """
    by_width = embeddings.by_width()
    with noticing(by_width, lambda width: take(width, _gradients(by_width[width]))) if take else nullcontext():
        torch.autograd.backward(loss)
    untouched = [weight for weight in weights if weight.requires_grad and weight.grad is None]
    if untouched:
        torch.autograd.backward(untouched, [torch.zeros_like(weight) for weight in untouched])
    return {width: _gradients(leaves) for width, leaves in by_width.items()}


def _gradients(leaves: list[Tensor]) -> Tensor:
    """Those of tensors of one width, one behind the other, `[O, D]`."""
    gradients = [(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).flatten(0, -2) for leaf in leaves]
    return gradients[0] if len(gradients) == 1 else torch.cat(gradients)


class GradientTotals:
    """Adds the gradients of a model's weights up over slices, in their order, as trainers do that have one slice each.

    Args:
        model: whose `.grad` fields hold those of one slice, summed over its micro-batches.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = trainable(model)
        self._totals: list[Tensor | None] = [None] * len(self._weights)

    def add(self) -> None:
        """Take the gradients of a slice, and leave none."""
        for number, weight in enumerate(self._weights):
            total, own, weight.grad = self._totals[number], weight.grad, None
            self._totals[number] = own if total is None or own is None else total.add_(own)

    def finish(self) -> None:
        """Put the sums where the gradients were."""
        for weight, total in zip(self._weights, self._totals, strict=True):
            weight.grad = total


@torch.no_grad()
def predict(model: nn.Module, dense: Tensor, embeddings: Embeddings) -> Tensor:
    """Logits of a slice in evaluation mode, float32 `[n]` or `[n, K]`; arguments as for `forward_backward`."""
    model.eval()
    logits: Tensor = model(dense, embeddings)
    return logits.detach()  # a view of a weight asks for gradients even here
