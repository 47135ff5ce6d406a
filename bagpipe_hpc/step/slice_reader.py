"""A trainer's own samples of each batch: dense features, labels and groups, read in the run's order."""

from contextlib import ExitStack
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.sample_stream import SampleStream

_Number = TypeVar("_Number", bound=np.generic)


class SliceReader:
    """Reads slices of batches whose numbers move forward; a context manager that closes the shards.

    Args:
        run: the run.
        slice_number: which contiguous slice, from 0, where no samples are named.
        slices: number of slices of a batch.
    """

    def __init__(self, run: Run, slice_number: int, slices: int) -> None:
        self._run = run
        self._slice = slice_number
        self._slices = slices
        self._stack = ExitStack()

    def start_segment(self, segment: Segment) -> None:
        """Turn to the batches of a segment."""
        self._stack.close()
        shards = self._stack.enter_context(self._run.shards(segment))
        order = self._run.order(segment)
        self._segment = segment
        self._dense = SampleStream(shards.read_dense, order)
        self._labels = SampleStream(shards.read_labels, order)

    def read(
        self, batch: int, samples: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Dense features float32 `[n, dense features]` and labels float32 `[n]` of the slice.

        Args:
            batch: number of the batch in its segment.
            samples: numbers within the batch, int32 `[n]`, in the order wanted; the contiguous slice if not given.
        """
        whole, number = self._segment.sample_range(batch), (self._slice, self._slices)
        return _read(self._dense, whole, number, samples), _read(self._labels, whole, number, samples)

    def __enter__(self) -> "SliceReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class GroupReader:
    """Reads by which id of `train.auc_group` the samples of an evaluation are grouped; arguments as for `SliceReader`.

    A context manager that closes the shards. It reads files of its own, so that the mover may read meanwhile.
    """

    def __init__(self, run: Run, slice_number: int, slices: int, segment: Segment) -> None:
        self._segment = segment
        self._number = slice_number, slices
        self._stack = ExitStack()
        self._ids: SampleStream[NDArray[np.int64]] | None = None
        feature = run.auc_feature(segment)
        if feature is not None:
            shards = self._stack.enter_context(run.shards(segment))
            self._ids = SampleStream(lambda *rows: shards.read_sparse(*rows)[:, feature], run.order(segment))

    def read(self, batch: int, samples: NDArray[np.int32] | None = None) -> NDArray[np.int64] | None:
        """Groups of the slice, int64 `[n]`; None where nobody asks for them. Arguments as for `SliceReader.read`."""
        if self._ids is None:
            return None
        return _read(self._ids, self._segment.sample_range(batch), self._number, samples)

    def __enter__(self) -> "GroupReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _read(
    stream: SampleStream[NDArray[_Number]],
    batch: tuple[int, int],
    number: tuple[int, int],
    samples: NDArray[np.int32] | None,
) -> NDArray[_Number]:
    """The samples of a batch, from its first up to one after its last, that are named, or else those of a slice."""
    first, last = batch
    if samples is not None:
        return stream.read(first, last)[samples]
    bounds = slice_bounds(last - first, number[1])
    return stream.read(first + bounds[number[0]], first + bounds[number[0] + 1])
