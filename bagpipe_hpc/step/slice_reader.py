"""A trainer's own samples of each batch, read in the run's order: all but the rows that they look up.

Legend: `n` samples of the slice, `N` dense features, `F` features, `K` labels.
"""

from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.plan.bags import Bags, joined
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.run.evaluations import auc_feature
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.slice_bags import SliceBags
from bagpipe_hpc.storage.shards.sample_stream import SampleStream

_Columns = TypeVar("_Columns", NDArray[np.float32], NDArray[np.int64], Bags)


class SliceSamples(NamedTuple):
    """The samples of a slice.

    Attributes:
        dense: dense features, float32 `[n, N]`.
        labels: float32 `[n]`, with several labels `[n, K]`.
        weights: of the samples' losses, float32 `[n]`; None for 1.
        bags: what their look-ups make, in each group of tables of one width; None where every feature has one id a
            sample.
    """

    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32] | None
    bags: tuple[SliceBags | None, ...]


class SliceReader:
    """Reads slices of batches whose numbers move forward; a context manager that closes the shards.

    Segments that go on with an order find the blocks still there that the one before had open, whatever came between.

    Args:
        run: the run.
        slice_number: which contiguous slice, from 0, where no samples are named.
        slices: number of slices of a batch.
    """

    def __init__(self, run: Run, slice_number: int, slices: int) -> None:
        self._run = run
        self._features = run.model_facts.features
        self._groups = [list(group.look_ups.features) for group in run.groups]
        self._own_slice = slice_number, slices
        self._open: dict[bool, tuple[_Samples, _SegmentColumns]] = {}

    def start_segment(self, segment: Segment) -> None:
        """Turn to the batches of a segment."""
        self._segment = segment
        samples = _Samples.of(segment)
        was, columns = self._open.get(segment.is_training, (None, None))
        if columns is None or was is None or not columns.go_on(was, samples, segment):
            if columns is not None:
                columns.close()
            columns = _SegmentColumns(self._run, segment)
        self._columns = columns
        self._open[segment.is_training] = samples, columns

    def read(self, batch: int, samples: NDArray[np.int32] | None = None) -> SliceSamples:
        """The samples of the slice, as one micro-batch; arguments as for `read_parts`."""
        (whole,) = self.read_parts(batch, samples)
        return whole

    def read_parts(
        self, batch: int, samples: NDArray[np.int32] | None = None, sizes: NDArray[np.int32] | None = None
    ) -> list[SliceSamples]:
        """The samples of the slice, micro-batch after micro-batch.

        Args:
            batch: number of the batch in its segment.
            samples: numbers within the batch, int32 `[n]`, in the order wanted; the contiguous slice if not given.
            sizes: samples of each micro-batch, which add up to n, int32; one with all of them if not given.
        """
        where = self._segment.sample_range(batch), self._own_slice, samples
        columns = self._columns
        dense, labels = _read(columns.dense, *where), _read(columns.labels, *where)
        weights = None if columns.weights is None else _read(columns.weights, *where)
        id_weights = None if columns.id_weights is None else _read(columns.id_weights, *where)
        lengths = None if columns.lengths is None else _read(columns.lengths, *where)
        ends = [len(labels)] if sizes is None else np.cumsum(sizes).tolist()
        parts = []
        for first, last in pairwise([0, *ends]):
            bags: tuple[SliceBags | None, ...] = (None,) * len(self._groups)
            if id_weights is not None:
                of_part = id_weights.part(first, last)
                bags = tuple(self._weighted_bags(of_part, group) for group in self._groups)
            elif lengths is not None:
                bags = tuple(SliceBags.of(self._of(group), lengths[first:last, group]) for group in self._groups)
            of_samples = None if weights is None else weights[first:last]
            parts.append(SliceSamples(dense[first:last], labels[first:last], of_samples, bags))
        return parts

    def _of(self, group: list[int]) -> list[FeatureFacts]:
        return [self._features[number] for number in group]

    def _weighted_bags(self, id_weights: Bags, group: list[int]) -> SliceBags:
        own = id_weights.of_features(group)
        return SliceBags.of(self._of(group), own.lengths, own.values)

    def __enter__(self) -> "SliceReader":
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1][1].close()


class _Samples(NamedTuple):
    """Which samples segments have, and by what they are ordered."""

    epoch: int
    split: str
    samples: int
    heard: tuple[Heard, ...]

    @classmethod
    def of(cls, segment: Segment) -> "_Samples":
        heard = segment.heard if segment.is_training else ()
        return cls(segment.epoch, segment.split, segment.samples, heard)


class _SegmentColumns:
    """What a trainer reads of the samples of an epoch, or of an evaluation, in their order."""

    def __init__(self, run: Run, segment: Segment) -> None:
        self._run = run
        self._shards = run.shards(segment)
        self._order = order = run.order(segment)
        shards, manifest = self._shards, run.manifest
        is_ragged = any(feature.ragged for feature in manifest.features)
        has_id_weights = any(feature.weighted for feature in manifest.features)
        self.dense = SampleStream(shards.read_dense, order)
        self.labels = SampleStream(shards.read_labels, order)
        self.weights = SampleStream(shards.read_sample_weights, order) if manifest.weighted_samples else None
        self.id_weights = SampleStream(shards.read_id_weights, order) if has_id_weights else None
        self.lengths = SampleStream(shards.read_lengths, order) if is_ragged and not has_id_weights else None

    def go_on(self, was: _Samples, now: _Samples, segment: Segment) -> bool:
        """Whether a segment has the same samples in the same order, whatever was heard meanwhile."""
        return now == was or (now[:-1] == was[:-1] and self._run.order(segment) == self._order)

    def close(self) -> None:
        self._shards.close()


class GroupReader:
    """Reads by which id of `train.auc_group` the samples of an evaluation are grouped; arguments as for `SliceReader`.

    A context manager that closes the shards. It reads files of its own, so that the mover may read meanwhile.
    """

    def __init__(self, run: Run, slice_number: int, slices: int, segment: Segment) -> None:
        self._segment = segment
        self._own_slice = slice_number, slices
        self._stack = ExitStack()
        self._ids: SampleStream[NDArray[np.int64]] | None = None
        feature = auc_feature(run, segment)
        if feature is not None:
            shards = self._stack.enter_context(run.shards(segment))
            self._ids = SampleStream(lambda *rows: shards.read_sparse(*rows)[:, feature], run.order(segment))

    def read(self, batch: int, samples: NDArray[np.int32] | None = None) -> NDArray[np.int64] | None:
        """Groups of the slice, int64 `[n]`; None where nobody asks for them. Arguments as for `SliceReader.read`."""
        if self._ids is None:
            return None
        return _read(self._ids, self._segment.sample_range(batch), self._own_slice, samples)

    def __enter__(self) -> "GroupReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class NumberReader:
    """Tells which samples of the split a slice has; arguments as for `SliceReader`."""

    def __init__(self, run: Run, slice_number: int, slices: int, segment: Segment) -> None:
        self._segment = segment
        self._own_slice = slice_number, slices
        self._own_slices = SampleStream(lambda first, last: np.arange(first, last, dtype=np.int64), run.order(segment))

    def read(self, batch: int, samples: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
        """Numbers of the slice's samples in the split, int64 `[n]`; arguments as for `SliceReader.read`."""
        return _read(self._own_slices, self._segment.sample_range(batch), self._own_slice, samples)


def _read(
    stream: SampleStream[_Columns],
    batch: tuple[int, int],
    own_slice: tuple[int, int],
    samples: NDArray[np.int32] | None,
) -> _Columns:
    """The samples of a batch that are named, or else those of a slice.

    Those that are named may be of batches behind it, too. They are read from one batch after the other.

    Args:
        stream: what is read.
        batch: position of its first sample, and one after that of its last.
        own_slice: number of the slice, and how many there are.
        samples: those that are named, as for `SliceReader.read_parts`.
    """
    first, last = batch
    if samples is None:
        number, slices = own_slice
        bounds = slice_bounds(last - first, slices)
        return stream.read(first + bounds[number], first + bounds[number + 1])
    of_batches = np.flatnonzero(np.diff(samples // max(1, last - first))) + 1
    parts: list[Any] = []
    for own in np.split(samples, of_batches):
        begin, end = (int(own.min()), int(own.max()) + 1) if own.size else (0, 0)
        read: Any = stream.read(first + begin, first + end)
        parts.append(read.take(own - begin) if isinstance(read, Bags) else read[own - begin])
    return cast("_Columns", joined(parts) if isinstance(parts[0], Bags) else np.concatenate(parts))
