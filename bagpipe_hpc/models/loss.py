"""What training minimises, the same for the logits of every model.

Legend: `B` samples of a slice, `K` labels.
"""

from torch import Tensor, nn


def click_loss(logits: Tensor, labels: Tensor, batch_samples: int, sample_weights: Tensor | None = None) -> Tensor:
    """A slice's share of the global batch's mean binary cross-entropy.

    Dividing by the size of the whole batch, not of the slice, gives every trainer gradients that simply add up. The
    losses of several labels of a sample are added. With weights it is the sum of weighted losses divided by the number
    of samples, not by the sum of their weights, which a trainer would have to ask the others for.

    Args:
        logits: log-odds of a click, float32 `[B]`, or `[B, K]` for K labels; B may be 0.
        labels: 1 for a click, else 0, float32 of the same shape.
        batch_samples: of the global batch.
        sample_weights: float32 `[B]`; None for 1.

    Returns:
        A scalar, float32 `[]`, differentiable in the logits.
    """
    weights = sample_weights if sample_weights is None or logits.dim() == 1 else sample_weights.unsqueeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, weights, reduction="sum")
    return loss / batch_samples
