"""A trainer's own samples of each batch: dense features and labels, read in the run's order."""

from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.sample_stream import SampleStream


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
        first, last = self._segment.sample_range(batch)
        if samples is not None:
            return self._dense.read(first, last)[samples], self._labels.read(first, last)[samples]
        bounds = slice_bounds(last - first, self._slices)
        begin, end = first + bounds[self._slice], first + bounds[self._slice + 1]
        return self._dense.read(begin, end), self._labels.read(begin, end)

    def __enter__(self) -> "SliceReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
