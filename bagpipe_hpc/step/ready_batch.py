"""What is computed with: the inputs of a slice, and a batch whose rows are in the cache.

Legend: `n` samples of the slice, `K` labels, `U` rows of the batch, `V` look-ups, `O` embeddings, `D` their width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.kernels.device import Mark
from bagpipe_hpc.kernels.pooling import PoolLayout
from bagpipe_hpc.kernels.sum_order import SumOrder
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.plan.batch_plan import SharedPlan, TrainerPlan
from bagpipe_hpc.step.slice_bags import DeviceBags, embeddings_of
from bagpipe_hpc.step.slice_reader import SliceSamples


class BatchInputs(NamedTuple):
    """A slice of a batch, on the device of a trainer or of the reference.

    Attributes:
        dense: dense features, float32 `[n, dense features]`; n may be 0.
        labels: float32 `[n]`, with several labels `[n, K]`.
        weights: of the samples' losses, float32 `[n]`; None for 1.
        slots: of the batch's rows: now, later and private ones in this order, int32 `[U]`.
        positions: the row of each look-up, as an index into `slots`, in the order of the embeddings, int32 `[V]`.
        bags: what the look-ups make; None where each is the only one of its sample and feature.
        order: see `RowOperations.order_look_ups`; None where nothing is summed.
    """

    dense: Tensor
    labels: Tensor
    weights: Tensor | None
    slots: Tensor
    positions: Tensor
    bags: DeviceBags | None
    order: SumOrder | None

    @classmethod
    def of(
        cls,
        samples: SliceSamples,
        slots: NDArray[np.int32],
        positions: NDArray[np.int32],
        cache: RowCache,
        *,
        is_training: bool,
    ) -> "BatchInputs":
        """Bring a slice to where it is computed.

        Args:
            samples: of the slice.
            slots: of the batch's rows, `[U]`.
            positions: the row of each look-up, in the order of the data, `[V]`.
            cache: of the rows.
            is_training: whether their gradients will be summed.
        """
        to_device, bags = cache.device.to_device, samples.bags
        if bags is not None and bags.order is not None:
            positions = positions[bags.order]
        on_device = to_device(positions)
        return cls(
            to_device(samples.dense),
            to_device(samples.labels),
            None if samples.weights is None else to_device(samples.weights),
            to_device(slots),
            on_device,
            None if bags is None else bags.on_device(cache.device),
            cache.operations.order_look_ups(on_device, len(slots)) if is_training else None,
        )

    @property
    def pool(self) -> PoolLayout | None:
        """Which look-ups make which embedding; None for one each."""
        return self.bags.pool if self.bags else None

    def embeddings(self, cache: RowCache, features: Sequence[FeatureFacts]) -> Embeddings:
        """What a model gets of the look-ups; `features` are all of them, in the order of the data."""
        outputs = cache.look_up(self.slots, self.positions, self.pool)
        return embeddings_of(features, len(self.labels), outputs, self.bags)

    def sum_gradients(self, cache: RowCache, gradients: Tensor) -> Tensor:
        """The gradients of rows, float32 `[U, D]`, from those of the embeddings, `[O, D]`."""
        return cache.sum_gradients(gradients, self.positions, len(self.slots), self.order, self.pool)

    def tensors(self) -> list[Tensor]:
        """All of them."""
        weights = [] if self.weights is None else [self.weights]
        of_bags = self.bags.tensors() if self.bags else []
        return [self.dense, self.labels, *weights, self.slots, self.positions, *of_bags, *(self.order or ())]


NO_INPUTS = BatchInputs(torch.empty(0), torch.empty(0), None, torch.empty(0), torch.empty(0), None, None)


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
