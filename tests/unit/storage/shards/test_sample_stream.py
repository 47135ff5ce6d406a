"""A stream gives the samples of an order, and reads each block once."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.sample_layout import SampleLayout
from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.storage.shards.sample_stream import SampleStream
from tests.end_to_end.policies import EvenFirst

orders = st.builds(
    SampleOrder,
    rows=st.integers(1, 60),
    block_rows=st.integers(1, 20),
    seed=st.integers(0, 1000),
    epoch=st.just(0),
    shuffle=st.booleans(),
)


def column_of(order: SampleOrder) -> np.ndarray:
    """A column group whose every number is different, `[rows, 3]`."""
    return np.arange(order.rows * 3).reshape(order.rows, 3)


def in_order(order: SampleOrder) -> np.ndarray:
    return np.concatenate(
        [column_of(order)[slice(*order.block_range(block))][order.inside_block(block)] for block in order.blocks()]
    )


def reader(order: SampleOrder, reads: list[tuple[int, int]]) -> Callable[[int, int], np.ndarray]:
    """Reads the column and notes every range that is asked for."""

    def read(first: int, last: int) -> np.ndarray:
        reads.append((first, last))
        return column_of(order)[first:last]

    return read


@given(orders, st.data())
def test_ranges_that_move_forward_read_each_block_at_most_once(order: SampleOrder, data: st.DataObject) -> None:
    """Ranges may be empty, adjoin, leave gaps, and end where the order ends."""
    bounds = data.draw(st.lists(st.integers(0, order.rows), max_size=12).map(sorted))
    reads: list[tuple[int, int]] = []
    stream, expected = SampleStream(reader(order, reads), order), in_order(order)
    for first, last in pairwise(bounds):
        np.testing.assert_array_equal(stream.read(first, last), expected[first:last])
    reads = [(first, last) for first, last in reads if first < last]
    assert len(set(reads)) == len(reads)
    assert set(reads) <= {order.block_range(block) for block in order.blocks()}


@given(orders, st.integers(1, 25))
def test_batches_of_a_whole_epoch_read_everything_once(order: SampleOrder, batch_size: int) -> None:
    reads: list[tuple[int, int]] = []
    stream = SampleStream(reader(order, reads), order)
    batches = [stream.read(first, min(first + batch_size, order.rows)) for first in range(0, order.rows, batch_size)]
    np.testing.assert_array_equal(np.concatenate(batches), in_order(order))
    assert reads == [order.block_range(block) for block in order.blocks()]


@given(orders, st.integers(1, 25))
def test_an_order_may_come_to_a_block_again_for_its_other_samples(order: SampleOrder, batch_size: int) -> None:
    twice = EvenFirst(order.rows, order.block_rows, order.seed, order.epoch, order.shuffle)
    stream = SampleStream(reader(order, []), twice)
    batches = [stream.read(first, min(first + batch_size, order.rows)) for first in range(0, order.rows, batch_size)]
    np.testing.assert_array_equal(np.concatenate(batches), in_order(twice))
    np.testing.assert_array_equal(np.sort(in_order(twice), axis=0), column_of(order))


def test_an_order_that_loses_samples_is_refused() -> None:
    class Half(SampleOrder):
        def blocks(self) -> np.ndarray:
            return super().blocks()[::2]

    class Fewer(SampleOrder):
        def inside_block(self, block: int) -> np.ndarray:
            return super().inside_block(block)[1:]

    with pytest.raises(PlanError, match="the blocks of the policy's order have 6 of 10 samples"):
        SampleStream(reader(SampleOrder(10, 4, 1, 0), []), Half(10, 4, 1, 0, shuffle=False))
    stream = SampleStream(reader(SampleOrder(10, 4, 1, 0), []), Fewer(10, 4, 1, 0, shuffle=False))
    with pytest.raises(PlanError, match="uses 3 samples of block 0, and says 4"):
        stream.read(0, 3)


def test_an_empty_range_at_the_end_is_empty() -> None:
    """The slice of a trainer that gets no sample of the last, small batch."""
    order = SampleOrder(10, 4, seed=1, epoch=0)
    assert SampleStream(reader(order, []), order).read(10, 10).shape == (0, 3)


def test_what_was_read_is_the_callers_own() -> None:
    order = SampleOrder(10, 10, seed=1, epoch=0)
    stream = SampleStream(reader(order, []), order)
    stream.read(0, 5)[:] = -1
    np.testing.assert_array_equal(stream.read(0, 5), in_order(order)[:5])


@st.composite
def lane_orders(draw: st.DrawFn) -> LaneOrder:
    shard_rows = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=4)))
    block_rows, batch = draw(st.integers(1, 30)), draw(st.integers(1, 50))
    blocks = ShardBlocks(sum(shard_rows), block_rows, draw(st.integers(0, 99)), 0, True, shard_rows)
    return LaneOrder(blocks, batch, draw(st.integers(1, batch)))


def in_lanes(order: LaneOrder, first: int, last: int) -> np.ndarray:
    """What positions of an order of lanes hold."""
    layout, whole = SampleLayout.of(order), column_of(order.blocks)
    parts = [
        whole[layout.block_range(piece)[0] + layout.samples(piece)[begin:end]]
        for piece, begin, end in layout.parts(first, last)
    ]
    return np.concatenate([whole[:0], *parts])


@given(lane_orders(), st.integers(1, 20), st.integers(0, 200))
def test_the_slices_of_trainers_are_the_batches(order: LaneOrder, trainers: int, resumed_at: int) -> None:
    """Whatever their number, and wherever they begin: each trainer has a stream of its own."""
    rows = order.blocks.rows
    streams = [SampleStream(reader(order.blocks, []), order) for _ in range(trainers)]
    for first in range(resumed_at * order.batch_size, rows, order.batch_size):
        size = min(order.batch_size, rows - first)
        bounds = slice_bounds(size, trainers)
        own = [
            stream.read(first + begin, first + end)
            for stream, (begin, end) in zip(streams, pairwise(bounds), strict=True)
        ]
        np.testing.assert_array_equal(np.concatenate(own), in_lanes(order, first, first + size))


@pytest.mark.parametrize("trainers", [3, 4, 12, 16])
def test_a_trainer_reads_its_own_samples(trainers: int) -> None:
    """Within a tenth, in an epoch of 4096 blocks in 256 lanes; a trainer of another slice reads other blocks."""
    order = LaneOrder(SampleOrder(4096 * 8 * 8, 8, seed=1, epoch=0), batch_size=4096, lanes=256)
    rows, numbers = order.blocks.rows, np.arange(4096 * 8 * 8)
    for trainer in (trainers // 2, trainers - 1):
        read = 0

        def count(first: int, last: int) -> np.ndarray:
            nonlocal read
            read += last - first
            return numbers[first:last]

        stream = SampleStream(count, order)
        begin, end = slice_bounds(order.batch_size, trainers)[trainer : trainer + 2]
        used = sum(stream.read(first + begin, first + end).size for first in range(0, rows, order.batch_size))
        assert used * trainers == pytest.approx(rows, rel=0.01)
        assert used <= read <= 1.1 * used, read / used


@given(lane_orders())
def test_a_block_is_read_once_for_each_lane_that_comes_to_it(order: LaneOrder) -> None:
    """Where a lane begins and ends within a block, and where it began, it is read again."""
    reads: list[tuple[int, int]] = []
    stream = SampleStream(reader(order.blocks, reads), order)
    for first in range(0, order.blocks.rows, order.batch_size):
        stream.read(first, min(first + order.batch_size, order.blocks.rows))
    assert set(reads) == {order.blocks.block_range(block) for block in order.blocks.blocks().tolist()}
    assert len(reads) <= order.blocks.block_count + 2 * order.lanes
