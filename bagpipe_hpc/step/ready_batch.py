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
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.slices import slice_samples
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


def split_positions(
    positions: NDArray[np.integer], parts: Sequence[SliceSamples], group: int
) -> list[NDArray[np.int32]]:
    """The look-ups of each micro-batch of a slice in a group of tables, as wide as kernels take them.

    Args:
        positions: of the slice's look-ups, sample after sample, `[V]`.
        parts: the samples of each micro-batch.
        group: number of the group.
    """
    wide: NDArray[np.int32] = positions.astype(np.int32, copy=False)
    if len(parts) == 1:
        return [wide]
    of_sample = wide.size // max(1, sum(len(part.labels) for part in parts))  # where all have as many
    counts = [
        len(part.labels) * of_sample if (bags := part.bags[group]) is None else int(bags.counts.sum()) for part in parts
    ]
    return np.split(wide, np.cumsum(counts)[:-1])


def added(sums: Tensor | None, more: Tensor) -> Tensor:
    """The gradients of rows of a group of tables over several micro-batches, in their order; `sums` is changed."""
    return more if sums is None else sums.add_(more)


NO_INPUTS = BatchInputs(torch.empty(0), torch.empty(0), None, ())


@dataclass(frozen=True)
class ReadyBatch:
    """A micro-batch of a batch, mostly all of it; without samples it is the closing one of its segment, without inputs.

    Attributes:
        plan: what the trainer got of the batch's plan.
        inputs: what is computed with.
        ready: when the rows that it looks up and the inputs are on the device.
        part: number of the micro-batch, from 0.
    """

    plan: ReceivedPlan
    inputs: BatchInputs
    ready: Mark
    part: int = 0

    @property
    def is_last(self) -> bool:
        """Whether it is the last micro-batch of its batch, with which all rows of the batch are here."""
        sizes = self.plan.micro_batches
        return sizes is None or self.part == sizes.size - 1

    def samples(self, slices: int, number: int) -> NDArray[np.int64]:
        """Numbers of its samples in the batch, int64 `[n]`; arguments as for `slice_samples`."""
        of_slice = slice_samples(self.plan.samples, self.plan.batch_samples, slices, number)
        if (sizes := self.plan.micro_batches) is None:
            return of_slice
        return np.split(of_slice, np.cumsum(sizes)[:-1])[self.part]
