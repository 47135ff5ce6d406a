"""The look-ups of a batch sorted by row: what a GPU needs to sum gradients in a fixed order.

Legend: `M` look-ups.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class SumOrder(NamedTuple):
    """Look-ups sorted by row.

    Attributes:
        look_ups: int64 `[M]`; row u's are `look_ups[starts[u] : starts[u + 1]]`, in the order in which they stand.
        starts: int32 `[rows + 1]`.
    """

    look_ups: Tensor
    starts: Tensor

    @classmethod
    def of(cls, positions: Tensor, rows: int) -> "SumOrder":
        """Sort the look-ups of a batch.

        Args:
            positions: the row of each look-up, int32 `[M]`, each below `rows`; M below 2**31.
            rows: number of rows.
        """
        ordered, look_ups = torch.sort(positions, stable=True)
        every_row = torch.arange(rows + 1, dtype=positions.dtype, device=positions.device)
        return cls(look_ups, torch.searchsorted(ordered, every_row, out_int32=True))
