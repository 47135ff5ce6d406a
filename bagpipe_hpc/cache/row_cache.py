"""Embedding rows on a trainer's device, addressed by slot.

Legend: `N` rows of one call, `D` embedding width, `K` state columns, `W` = D + K (+ 1 where versions are kept) record
width.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.kernels import reference


class RowCache:
    """Slots with weights, optimizer state and, where rows are verified, the step that last updated them.

    It holds no map from rows to slots: the oracle's plans speak of slots. The compute thread and the mover may use it
    at the same time, because the plan keeps the slots that they touch apart.

    Args:
        slots: number of slots.
        embedding_dim: width D.
        state_columns: optimizer state columns K.
        device: where the rows are.
        keep_versions: store a version with every row; exact up to 2**24 steps.
    """

    def __init__(
        self, slots: int, embedding_dim: int, state_columns: int, device: torch.device, *, keep_versions: bool = False
    ) -> None:
        self._weights = torch.zeros(slots, embedding_dim, device=device)
        self._state = torch.zeros(slots, state_columns, device=device)
        self._versions = torch.zeros(slots, 1, device=device) if keep_versions else None

    @property
    def columns(self) -> list[Tensor]:
        """The parts of a record in order, each `[slots, columns]`."""
        parts = [self._weights, self._state]
        return parts if self._versions is None else [*parts, self._versions]

    @property
    def bytes(self) -> int:
        """Memory of all slots."""
        return sum(part.nbytes for part in self.columns)

    def gather(self, slots: Tensor) -> Tensor:
        """Weights of slots, which may repeat: int64 `[N]` to float32 `[N, D]`."""
        return reference.gather(self._weights, slots)

    def gather_records(self, slots: Tensor) -> NDArray[np.float32]:
        """Whole records for a write-back: distinct slots int64 `[N]` to float32 `[N, W]` on the host."""
        return torch.cat([reference.gather(part, slots) for part in self.columns], dim=1).cpu().numpy()

    def scatter(self, slots: Tensor, records: NDArray[np.float32]) -> None:
        """Put fetched records into distinct slots: int64 `[N]`, float32 `[N, W]`."""
        values = torch.from_numpy(records).to(self._weights.device)
        widths = [part.shape[1] for part in self.columns]
        for part, columns in zip(self.columns, torch.split(values, widths, dim=1), strict=True):
            reference.scatter(part, slots, columns)

    def apply_sgd(self, slots: Tensor, gradients: Tensor, lr: float) -> None:
        """See `kernels.reference.apply_sgd`."""
        reference.apply_sgd(self._weights, slots, gradients, lr)

    def apply_rowwise_adagrad(self, slots: Tensor, gradients: Tensor, lr: float, eps: float) -> None:
        """See `kernels.reference.apply_rowwise_adagrad`; the accumulator is the first state column."""
        reference.apply_rowwise_adagrad(self._weights, self._state[:, :1], slots, gradients, lr, eps)

    def versions(self, slots: Tensor) -> Tensor:
        """Versions of slots, int64 `[N]`; only where versions are kept."""
        assert self._versions is not None, "versions are kept with debug.verify_rows only"
        return reference.gather(self._versions, slots)[:, 0].long()

    def set_version(self, slots: Tensor, step: int) -> None:
        """Note the step that updated slots; does nothing where versions are not kept."""
        if self._versions is not None:
            self._versions[slots] = float(step)
