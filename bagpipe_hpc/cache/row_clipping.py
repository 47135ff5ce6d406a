"""Clips the gradients of rows by their norm, before an optimizer sees them.

Legend: `N` rows of one call, `D` embedding width.
"""

import torch
from torch import Tensor

from bagpipe_hpc.rows.optimizers.exact import root, sum_of_columns

_LARGEST = torch.finfo(torch.float32).max


def clip_rows(gradients: Tensor, most: float) -> Tensor:
    """Scale each row's gradient down to a Euclidean norm of at most `most`; shorter ones keep their bits.

    The norm is that of one row's sum over the global batch: the norm over all rows of a step would be known only when
    its delayed sums are, a step later. Squares are added in float64, so none overflows, and a row's bits depend on its
    own gradient alone, wherever it stands (`rows/optimizers/exact.py`). What is not finite stays so.

    Args:
        gradients: float32 `[N, D]`; left as they are.
        most: above 0.

    Returns:
        float32 `[N, D]`, contiguous.
    """
    exact = gradients.double()
    norms = root(sum_of_columns(exact * exact)).clamp(max=_LARGEST).double()
    return torch.where(norms <= most, gradients, (exact * (most / norms)).float())
