"""What is computed with: the inputs of a slice, and a batch whose rows are in the cache.

Legend: `n` samples of the slice, `K` labels; of the tables of one width: `U` rows of the batch, `V` look-ups, `O`
embeddings, `D` their width.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.kernels.device import Device, Mark
from bagpipe_hpc.kernels.pooling import PoolLayout
from bagpipe_hpc.kernels.sum_order import SumOrder
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.step.slice_bags import DeviceBags, Outputs, SliceBags, embeddings_of
from bagpipe_hpc.step.slice_reader import SliceSamples


class LookUps(NamedTuple):
    """The look-ups of a slice in tables of one width, on the device.

    Attributes:
        slots: of the batch's rows: now, later and private ones in this order, int32 `[U]`.
        positions: the row of each look-up, as an index into `slots`, in the order of the embeddings, int32 `[V]`.
        bags: what the look-ups make; None where each is the only one of its sample and feature.
        order: see `RowOperations.order_look_ups`; None where nothing is summed.
    """

    slots: Tensor
    positions: Tensor
    bags: DeviceBags | None
    order: SumOrder | None

    @classmethod
    def of(
        cls,
        slots: NDArray[np.int32],
        positions: NDArray[np.int32],
        bags: SliceBags | None,
        cache: RowCache,
        *,
        is_training: bool,
    ) -> "LookUps":
        """Bring look-ups to where they are computed.

        Args:
            slots: of the batch's rows, `[U]`.
            positions: the row of each look-up, in the order of the data, `[V]`.
            bags: what the look-ups make; None where each is the only one of its sample and feature.
            cache: of the rows.
            is_training: whether their gradients will be summed.
        """
        to_device = cache.device.to_device
        if bags is not None and bags.order is not None:
            positions = positions[bags.order]
        on_device = to_device(positions)
        return cls(
            to_device(slots),
            on_device,
            None if bags is None else bags.on_device(cache.device),
            cache.operations.order_look_ups(on_device, len(slots)) if is_training else None,
        )

    @property
    def pool(self) -> PoolLayout | None:
        """Which look-ups make which embedding; None for one each."""
        return self.bags.pool if self.bags else None

    def outputs(self, cache: RowCache) -> Outputs:
        """What the look-ups make."""
        return Outputs(cache.look_up(self.slots, self.positions, self.pool), self.bags)

    def sum_gradients(self, cache: RowCache, gradients: Tensor) -> Tensor:
        """The gradients of rows, float32 `[U, D]`, from those of the embeddings, `[O, D]`."""
        return cache.sum_gradients(gradients, self.positions, len(self.slots), self.order, self.pool)

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [self.slots, self.positions, *(self.bags.tensors() if self.bags else ()), *(self.order or ())]


class BatchInputs(NamedTuple):
    """A slice of a batch, on the device of a trainer or of the reference.

    Attributes:
        dense: dense features, float32 `[n, dense features]`; n may be 0.
        labels: float32 `[n]`, with several labels `[n, K]`.
        weights: of the samples' losses, float32 `[n]`; None for 1.
        look_ups: in each group of tables of one width.
    """

    dense: Tensor
    labels: Tensor
    weights: Tensor | None
    look_ups: tuple[LookUps, ...]

    @classmethod
    def of(cls, samples: SliceSamples, device: Device, look_ups: Iterable[LookUps]) -> "BatchInputs":
        """Bring the samples of a slice to the device where its look-ups are."""
        weights = None if samples.weights is None else device.to_device(samples.weights)
        return cls(device.to_device(samples.dense), device.to_device(samples.labels), weights, tuple(look_ups))

    def embeddings(self, caches: Sequence[RowCache], features: Sequence[FeatureFacts]) -> Embeddings:
        """What a model gets of the look-ups.

        Args:
            caches: of each group of tables.
            features: all of them, in the order of the data.
        """
        outputs = [own.outputs(cache) for own, cache in zip(self.look_ups, caches, strict=True)]
        return embeddings_of(features, len(self.labels), outputs)

    def sum_gradients(self, caches: Sequence[RowCache], gradients: Mapping[int, Tensor]) -> list[Tensor]:
        """The gradients of the rows of each group, float32 `[U, D]`.

        Args:
            caches: of each group of tables.
            gradients: of the embeddings of each width D, `[O, D]`.
        """
        groups = zip(self.look_ups, caches, strict=True)
        return [own.sum_gradients(cache, gradients[cache.width]) for own, cache in groups]

    def tensors(self) -> list[Tensor]:
        """All of them."""
        weights = [] if self.weights is None else [self.weights]
        of_look_ups = (tensor for own in self.look_ups for tensor in own.tensors())
        return [self.dense, self.labels, *weights, *of_look_ups]


NO_INPUTS = BatchInputs(torch.empty(0), torch.empty(0), None, ())


@dataclass(frozen=True)
class ReadyBatch:
    """A batch; without samples it is the closing one of its segment, which has no inputs.

    Attributes:
        plan: what the trainer got of its plan.
        inputs: what is computed with.
        ready: when the rows and the inputs are on the device.
    """

    plan: ReceivedPlan
    inputs: BatchInputs
    ready: Mark
