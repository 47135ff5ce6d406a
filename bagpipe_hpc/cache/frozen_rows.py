"""Which rows of a cache are of frozen tables. Shapes: `N` rows of one call."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from bagpipe_hpc.rows.partition import Tables


@dataclass(frozen=True)
class FrozenRows:
    """Tells the rows of frozen tables from others.

    Attributes:
        ends: one more than the number of each table's last row, int64 `[tables]`, on the rows' device.
        is_open: whether the rows of each table are trained, bool `[tables]`.
    """

    ends: Tensor
    is_open: Tensor

    @classmethod
    def of(cls, names: Collection[str], tables: Tables, device: torch.device) -> "FrozenRows | None":
        """For the frozen tables among the tables of one width; None where none of these is frozen.

        Args:
            names: of all frozen tables.
            tables: of the width.
            device: where the rows are.
        """
        if not {*names} & {*tables.names}:
            return None
        is_open = torch.tensor([name not in names for name in tables.names], device=device)
        return cls(torch.from_numpy(tables.offsets[1:].copy()).to(device), is_open)

    def change(self, rows: Tensor) -> Tensor:
        """Which rows are trained: their numbers, int64 `[N]`, to bool `[N]`."""
        return self.is_open[torch.bucketize(rows, self.ends, right=True)]
