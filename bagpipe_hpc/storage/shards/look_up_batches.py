"""What the samples of batches look up, read ahead by threads.

A thread makes a whole batch: it reads the blocks that the batch has samples of, unless another thread has read them,
and puts their ids in place. Batches come in their order, whatever the number of threads.

Legend: `m` samples of a block that a batch has, `F` features.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags, Int64s, joined
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.section_order import SectionOrder, layout_of
from bagpipe_hpc.storage.shards.reader import ClickShards

PlaceIds = Callable[[NDArray[Any], Int64s, Int64s, Int64s, Int64s], bool]
"""As `place_ids`."""
Range = tuple[int, int]
"""Positions in the order: the first, and one after the last."""


def place_ids(ids: NDArray[Any], samples: Int64s, table_rows: Int64s, first_rows: Int64s, rows: Int64s) -> bool:
    """Write `ids[samples] + first_rows` to `rows`; `kernels.look_ups.place` does the same natively.

    Args:
        ids: of a block, int32 or int64 `[n, F]`, contiguous.
        samples: numbers from 0 to below n, int64 `[m]`.
        table_rows: ids of each feature's table, int64 `[F]`.
        first_rows: the first global row of each feature's table, int64 `[F]`.
        rows: where global rows go, int64 `[m, F]`.

    Returns:
        Whether every id is one of its table; if not, `rows` are of no use.
    """
    taken = ids[samples]
    np.add(taken, first_rows, out=rows)
    return bool(((taken >= 0) & (taken < table_rows)).all())


@dataclass
class _Block:
    """A block of the shards that is being read or was read, for a piece of the order.

    Attributes:
        read: its ids or bags, and which of its samples the piece has, in the piece's order.
        left: samples of the piece that batches have yet to take.
    """

    read: "Future[tuple[Any, Int64s]]"
    left: int


class LookUpBatches:
    """Global rows of the batches of one segment.

    Args:
        shards: what the samples are read from; it stays open until the last batch was taken.
        order: the epoch's order.
        table_rows: ids of each feature's table, int64 `[F]`.
        first_rows: the first global row of each feature's table, int64 `[F]`.
        place: puts the ids of features with one id a sample in their places; `place_ids` or a faster one.

    Raises:
        PlanError: the order has not as many samples as it says.
    """

    def __init__(
        self,
        shards: ClickShards,
        order: SampleOrder | LaneOrder | SectionOrder,
        table_rows: Int64s,
        first_rows: Int64s,
        place: PlaceIds = place_ids,
    ) -> None:
        self._shards = shards
        self._layout = layout_of(order)
        self._table_rows = table_rows
        self._first_rows = first_rows
        self._place = place
        self._lock = threading.Lock()
        self._held: dict[int, _Block] = {}

    def read(self, count: int, range_of: Callable[[int], Range], threads: int) -> Iterator[Bags]:
        """Some batches at ranges of positions, each of which begins where the one before it ends.

        Args:
            count: number of batches; a segment may have millions.
            range_of: gives the positions of a batch by its number, from 0; called when it is about to be read.
            threads: number of reading threads, 1 or more. As many batches are read ahead as there are threads, and
                those that share their blocks.

        Raises:
            DataError: a shard is missing or damaged, or an id is outside its table.
        """
        if not count:
            return
        first = range_of(0)
        whole = first[0], range_of(count - 1)[1]
        block_samples = int(np.diff(self._layout.bounds).max(initial=0))
        ahead = threads + -(-threads * block_samples // max(1, first[1] - first[0]))
        with ThreadPoolExecutor(threads, thread_name_prefix="reader") as pool:
            waiting = map(range_of, range(count))
            under_way: deque[Future[Bags]] = deque()
            try:
                while True:
                    for batch in islice(waiting, ahead + 1 - len(under_way)):
                        under_way.append(pool.submit(self._batch, batch, whole))
                    if not under_way:
                        return
                    yield under_way.popleft().result()
            finally:
                for batch_read in under_way:
                    batch_read.cancel()

    def _batch(self, batch: Range, whole: Range) -> Bags:
        """The rows of a batch; `whole` are the positions of all batches."""
        first, last = batch
        is_one_hot = not self._shards.has_ragged_features
        rows = np.empty((last - first, len(self._first_rows)) if is_one_hot else (0, 0), dtype=np.int64)
        pieces = [Bags.ragged(rows.reshape(-1)[:0], np.empty((0, len(self._first_rows)), dtype=np.int64))]
        done = 0
        for piece, begin, end in self._layout.parts(first, last):
            ids, inside = self._block(piece, whole)
            samples, into = inside[begin:end], rows[done : done + end - begin]
            if not is_one_hot:
                pieces.append(ids.take(samples))
            elif not self._place(ids, samples, self._table_rows, self._first_rows, into):
                self._shards.read_sparse(*self._layout.block_range(piece))  # names the id
                raise AssertionError("an id is outside its table, and the reader does not say which")
            self._let_go(piece, end - begin)
            done += end - begin
        return Bags.one_hot(rows) if is_one_hot else joined(pieces[1:] or pieces).plus(self._first_rows)

    def _block(self, piece: int, whole: Range) -> tuple[Any, Int64s]:
        """The block of a piece, and the piece's samples in their order; the thread that asks first reads it."""
        with self._lock:
            held = self._held.get(piece)
            is_first = held is None
            if held is None:
                held = self._held[piece] = _Block(Future(), self._layout.used(piece, *whole))
        if is_first:
            try:
                held.read.set_result(self._read(piece))
            except BaseException as error:  # noqa: BLE001 - it is raised in every thread that waits for the block
                held.read.set_exception(error)
        return held.read.result()

    def _read(self, piece: int) -> tuple[Any, Int64s]:
        inside = self._layout.samples(piece)
        first, last = self._layout.block_range(piece)
        ids: Any
        if self._shards.has_ragged_features:
            ids = self._shards.read_look_ups(first, last)
        else:
            ids, inside = np.ascontiguousarray(self._shards.read_stored_ids(first, last)), np.ascontiguousarray(inside)
        if self._layout.lanes is None:
            return ids, inside
        # Many batches will each take a little of the block: put it in order while it is in the processor's cache.
        return ids.take(inside) if isinstance(ids, Bags) else ids.take(inside, axis=0), np.arange(inside.size)

    def _let_go(self, piece: int, samples: int) -> None:
        """Forget a piece of which every sample is taken."""
        with self._lock:
            held = self._held[piece]
            held.left -= samples
            if held.left == 0:
                del self._held[piece]
