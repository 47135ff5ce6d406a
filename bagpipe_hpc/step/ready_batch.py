"""What a mover hands to the compute thread: a batch whose rows are in the cache."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.kernels.sum_order import SumOrder
from bagpipe_hpc.plan.batch_plan import SharedPlan, TrainerPlan


class BatchInputs(NamedTuple):
    """A trainer's slice of a batch, on its device.

    Attributes:
        dense: dense features, float32 `[n, dense features]`; n may be 0.
        labels: float32 `[n]`.
        slots: of the batch's rows: now, later and private ones in this order, int32 `[U]`.
        positions: the row of each look-up, as an index into `slots`, int32 `[n * F]`.
        order: see `RowOperations.order_look_ups`; None where nothing is summed.
    """

    dense: Tensor
    labels: Tensor
    slots: Tensor
    positions: Tensor
    order: SumOrder | None

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [self.dense, self.labels, self.slots, self.positions, *(self.order or ())]


NO_INPUTS = BatchInputs(torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0), None)


@dataclass(frozen=True)
class ReadyBatch:
    """A batch; without samples it is the closing one of its segment, which has no inputs.

    Attributes:
        shared: its plan.
        own: the trainer's part of the plan.
        inputs: what is computed with.
        ready: when the rows and the inputs are on the device.
    """

    shared: SharedPlan
    own: TrainerPlan
    inputs: BatchInputs
    ready: Mark
