"""What training makes small, apart from the models: every model's logits are judged by it.

Legend: `B` samples of a slice.
"""

from torch import Tensor, nn


def click_loss(logits: Tensor, labels: Tensor, batch_samples: int) -> Tensor:
    """A slice's share of the global batch's mean binary cross-entropy.

    Dividing by the size of the whole batch, not of the slice, gives every trainer gradients that simply add up.

    Args:
        logits: log-odds of a click, float32 `[B]`; B may be 0.
        labels: 1 for a click, else 0, float32 `[B]`.
        batch_samples: of the global batch.

    Returns:
        A scalar, float32 `[]`, differentiable in the logits.
    """
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return loss / batch_samples
