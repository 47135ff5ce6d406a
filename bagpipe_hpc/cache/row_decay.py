"""Decay of rows' weights, the same for every row optimizer: before its update, on the rows that a batch uses.

Legend: `R` rows of the cache, `N` rows of one call, `D` embedding width.
"""

from dataclasses import dataclass

from torch import Tensor

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.kernels.rows.row_operations import RowOperations


@dataclass(frozen=True)
class RowDecay:
    """Pulls weights towards 0 each time that their row is updated; a row that a batch does not use stays as it is.

    It is applied once a step to each distinct row, after its gradients were summed over all trainers and clipped.

    Attributes:
        strength: `optimizer.rows_weight_decay`.
        is_decoupled: the weights themselves decay (AdamW: Loshchilov, Hutter 2019); if not, the gradient gets a term.
    """

    strength: float
    is_decoupled: bool

    @classmethod
    def of(cls, config: OptimizerConfig) -> "RowDecay | None":
        """What a configuration asks for; None for no decay, which costs nothing."""
        if not config.rows_weight_decay:
            return None
        return cls(config.rows_weight_decay, config.rows_weight_decay_mode == "decoupled")

    def apply(
        self, operations: RowOperations, weights: Tensor, slots: Tensor, gradients: Tensor, rate: float
    ) -> Tensor:
        """Let rows decay, just before their update. Every operation rounds once.

        Args:
            operations: row operations on the tables' device.
            weights: of all rows, float32 `[R, D]`; changed where decay is decoupled.
            slots: of the rows, int32 `[N]`.
            gradients: float32 `[N, D]`; left as they are.
            rate: learning rate of the step.

        Returns:
            The gradients to update by, float32 `[N, D]`, contiguous: plus `strength` times the weights, or as given.
        """
        rows = operations.gather(weights, slots)
        if not self.is_decoupled:
            return gradients + rows * self.strength
        rows -= rows * (rate * self.strength)
        operations.scatter_records([weights], slots, rows)
        return gradients
