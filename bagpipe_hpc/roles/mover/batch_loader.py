"""Brings the samples of a trainer's slices to its device, each micro-batch with its look-ups, in the mover's thread."""

from collections.abc import Sequence

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.plan.batch_plan import GroupPlan, ReceivedPlan
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.step.ready_batch import BatchInputs, LookUps, ReadyBatch, split_positions
from bagpipe_hpc.step.slice_reader import SliceReader, SliceSamples


class BatchLoader:
    """Loads the batches of one segment after the other.

    Args:
        reader: dense features and labels of this trainer's slices.
        caches: of each group of tables.
    """

    def __init__(self, reader: SliceReader, caches: Sequence[RowCache]) -> None:
        self._reader = reader
        self._caches = caches
        self._device = caches[0].device
        self._is_training = False

    def start_segment(self, segment: Segment) -> None:
        """Turn to the batches of a segment."""
        self._reader.start_segment(segment)
        self._is_training = segment.is_training

    def load(self, plan: ReceivedPlan) -> list[ReadyBatch]:
        """Read the samples of a batch, and bring each micro-batch to the device; their rows may still be on the way."""
        parts = self._reader.read_parts(plan.batch, plan.samples, plan.micro_batches)
        groups = zip(self._caches, plan.groups, strict=True)
        look_ups = [self._look_ups(*of_group, parts, number) for number, of_group in enumerate(groups)]
        inputs = zip(parts, zip(*look_ups, strict=True), strict=True)
        return [
            ReadyBatch(plan, BatchInputs.of(samples, self._device, own), None, number)
            for number, (samples, own) in enumerate(inputs)
        ]

    def _look_ups(self, cache: RowCache, plan: GroupPlan, parts: Sequence[SliceSamples], group: int) -> list[LookUps]:
        """The look-ups of each micro-batch in a group of tables."""
        positions = split_positions(plan.own.positions, parts, group)
        return [
            LookUps.of(plan.slots, own, samples.bags[group], cache, is_training=self._is_training)
            for own, samples in zip(positions, parts, strict=True)
        ]
