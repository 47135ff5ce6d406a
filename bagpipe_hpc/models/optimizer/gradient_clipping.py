"""Clips the gradient of the dense half by its norm, with bits that do not depend on the number of trainers."""

from collections.abc import Iterable

import torch
from torch import nn


@torch.no_grad()
def clip_dense(weights: Iterable[nn.Parameter], most: float) -> None:
    """Scale the gradient of all weights down to a Euclidean norm of at most `most`, as `clip_grad_norm_` of torch.

    Call it once the gradients hold their sums over the trainers. Where they lie in memory depends on the number of
    trainers, and torch may add numbers in another order where they are aligned otherwise. So the norm is taken of one
    copy of them, in float64. The factor is torch's: `most / (norm + 1e-6)`, but at most 1. A gradient that is not
    finite is left as it is, so that the layer can be named.

    Args:
        weights: each with a gradient; frozen ones have none.
        most: above 0.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if not gradients:
        return
    whole = torch.cat([gradient.reshape(-1) for gradient in gradients])
    norm = torch.linalg.vector_norm(whole, dtype=torch.float64)
    factor = torch.where(norm.isfinite(), most / (norm + 1e-6), 1.0).clamp(max=1.0).float()
    for gradient in gradients:
        gradient.mul_(factor)
