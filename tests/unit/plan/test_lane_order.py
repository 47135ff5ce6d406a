"""Lanes put batches together from blocks all over the data: each sample once, in an order that knows no trainers."""

from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.lane_order import LaneOrder, automatic_lanes, pieces_of_lanes, usable_lanes
from bagpipe_hpc.plan.sample_layout import SampleLayout
from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks
from bagpipe_hpc.plan.slices import slice_bounds


@st.composite
def lane_orders(draw: st.DrawFn) -> LaneOrder:
    """Of shards, blocks, batches and lanes that need not divide each other."""
    shard_rows = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=5)))
    block_rows, batch = draw(st.integers(1, 30)), draw(st.integers(1, 50))
    blocks = ShardBlocks(
        sum(shard_rows), block_rows, draw(st.integers(0, 99)), draw(st.integers(0, 2)), True, shard_rows
    )
    return LaneOrder(blocks, batch, draw(st.integers(1, batch)))


def in_blocks(order: SampleOrder) -> NDArray[np.int64]:
    """All samples in the order of their blocks."""
    return np.concatenate(
        [order.block_range(block)[0] + order.inside_block(block) for block in order.blocks().tolist()]
    )


def samples(order: LaneOrder | SampleOrder, first: int, last: int) -> list[int]:
    """The samples at positions `first` up to `last`."""
    layout = SampleLayout.of(order)
    return [
        layout.block_range(piece)[0] + place
        for piece, begin, end in layout.parts(first, last)
        for place in layout.samples(piece)[begin:end].tolist()
    ]


def in_order(order: LaneOrder) -> list[int]:
    """All samples in their order."""
    return samples(order, 0, order.blocks.rows)


def slices_of(order: LaneOrder, trainers: int) -> list[tuple[int, int]]:
    """Where the slices of all batches begin and end, batch after batch."""
    starts = range(0, order.blocks.rows, order.batch_size)
    sizes = (min(order.batch_size, order.blocks.rows - first) for first in starts)
    return [
        (first + begin, first + end)
        for first, size in zip(starts, sizes, strict=True)
        for begin, end in pairwise(slice_bounds(size, trainers))
    ]


@given(lane_orders())
def test_every_sample_is_used_once(order: LaneOrder) -> None:
    assert sorted(in_order(order)) == list(range(order.blocks.rows))


@given(lane_orders())
def test_a_batch_takes_the_next_samples_of_each_lane(order: LaneOrder) -> None:
    """As a loop deals them out: lanes are the pieces of the order of blocks, each turned by less than a block."""
    rows, batch, lanes = order.blocks.rows, order.batch_size, order.lanes
    sizes = [min(batch, rows - first) for first in range(0, rows, batch)]
    shares = [[(lane + 1) * size // lanes - lane * size // lanes for lane in range(lanes)] for size in sizes]
    ends = np.cumsum(np.sum(shares, axis=0))
    pieces = np.split(in_blocks(order.blocks), ends[:-1])
    assert (order.turns < order.blocks.block_rows).all()
    turned = [np.roll(piece, -int(turn)).tolist() for piece, turn in zip(pieces, order.turns, strict=True)]
    dealt = []
    for share in shares:
        for piece, count in zip(turned, share, strict=True):
            dealt += piece[:count]
            del piece[:count]
    assert in_order(order) == dealt
    assert not any(turned)


@given(lane_orders(), st.integers(1, 60))
def test_slices_of_any_number_of_trainers_are_the_same_order(order: LaneOrder, trainers: int) -> None:
    found = [sample for first, last in slices_of(order, trainers) for sample in samples(order, first, last)]
    assert found == in_order(order)


@given(lane_orders())
def test_a_single_lane_is_the_order_of_the_blocks(order: LaneOrder) -> None:
    assert in_order(LaneOrder(order.blocks, order.batch_size, 1)) == in_blocks(order.blocks).tolist()


@given(lane_orders(), st.booleans(), st.data())
def test_what_is_used_of_a_piece_is_counted(order: LaneOrder, has_lanes: bool, data: st.DataObject) -> None:
    """From one batch to another, as a segment has them."""
    layout = SampleLayout.of(order if has_lanes else order.blocks)
    rows = order.blocks.rows
    first, last = data.draw(st.tuples(st.integers(0, rows), st.integers(0, rows)).map(sorted))
    found = Counter[int]()
    for piece, begin, end in layout.parts(first, last):
        found[piece] += end - begin
    assert [layout.used(piece, first, last) for piece in range(len(layout.numbers))] == [
        found[piece] for piece in range(len(layout.numbers))
    ]


@given(lane_orders(), st.integers(1, 60))
def test_pieces_of_lanes_are_those_that_slices_have(order: LaneOrder, trainers: int) -> None:
    """Of a full batch: for each trainer the lanes that have samples of its slice."""
    if order.blocks.rows >= order.batch_size:
        slices = pairwise(slice_bounds(order.batch_size, trainers))
        found = sum(order.lanes_between(first, last).size for first, last in slices if first < last)
        assert pieces_of_lanes(order.batch_size, order.lanes, trainers) == found


@given(lane_orders(), st.integers(1, 60))
def test_a_slice_has_at_most_two_lanes_too_many(order: LaneOrder, trainers: int) -> None:
    for first, last in slices_of(order, trainers):
        is_full = first // order.batch_size < order.blocks.rows // order.batch_size
        if is_full and first < last:
            assert len(order.lanes_between(first, last)) <= order.lanes // trainers + 2


def test_lanes_come_to_new_blocks_in_turn() -> None:
    """Where all lanes would begin with a block, and end it in the same batch: of 64 samples, 4 of each lane."""
    order = LaneOrder(SampleOrder(64 * 256, 64, seed=1, epoch=0), batch_size=64, lanes=16)
    assert not (order.starts % 64).any()
    blocks = [{sample // 64 for sample in samples(order, first, first + 64)} for first in range(0, 64 * 256, 64)]
    news = [len(now - before) for before, now in pairwise(blocks)]
    assert max(news) <= 2
    assert sum(news) >= 240


def test_a_batch_has_samples_from_all_over_the_data() -> None:
    """Of as many blocks as there are lanes, where a single lane gives it two or three."""
    blocks = SampleOrder(64 * 512, 64, seed=1, epoch=0)
    found = [len({sample // 64 for sample in samples(LaneOrder(blocks, 128, lanes), 6400, 6528)}) for lanes in (1, 32)]
    assert found[0] <= 3
    assert found[1] >= 32


@pytest.mark.parametrize(
    ("wanted", "blocks", "batch", "used"),
    [(1, 1, 1, 1), (64, 512, 64, 64), (64, 511, 64, 32), (64, 512, 63, 32), (48, 60, 1000, 6), (4, 2, 10, 1)],
)
def test_lanes_are_halved_until_there_is_enough_for_each(wanted: int, blocks: int, batch: int, used: int) -> None:
    assert usable_lanes(wanted, blocks, batch) == used


@pytest.mark.parametrize(
    ("blocks", "batch", "used"),
    [(0, 9, 1), (1, 1, 1), (63, 64, 1), (64, 64, 2), (511, 64, 8), (9999, 63, 32), (1 << 20, 1 << 16, 1024)],
)
def test_lanes_of_the_data_are_powers_of_two_with_32_blocks_each(blocks: int, batch: int, used: int) -> None:
    assert automatic_lanes(blocks, batch) == used


def test_blocks_begin_anew_in_each_shard() -> None:
    order = ShardBlocks(25, 10, seed=1, epoch=0, shuffle=False, shard_rows=(12, 3, 10))
    ranges = [order.block_range(block) for block in order.blocks().tolist()]
    assert ranges == [(0, 10), (10, 12), (12, 15), (15, 25)]
    assert order.sizes(order.blocks()).tolist() == [10, 2, 3, 10]


def test_blocks_of_any_size_are_whole_shards() -> None:
    order = ShardBlocks(25, 2**63 - 1, seed=1, epoch=0, shuffle=False, shard_rows=(12, 13))
    assert [order.block_range(block) for block in range(order.block_count)] == [(0, 12), (12, 25)]
    assert sorted(in_order(LaneOrder(order, 5, 2))) == list(range(25))


class NextLane(LaneOrder):
    """Takes the lane behind the right one, where there is one."""

    def lanes_between(self, first: int, last: int) -> Int64s:
        return np.minimum(super().lanes_between(first, last) + 1, self.lanes - 1)


class NeverMovesOn(LaneOrder):
    """Forgets what the batches before have taken."""

    def taken(self, lanes: Int64s, position: int) -> Int64s:
        return super().taken(lanes, position % self.batch_size)


class EvenLanes(LaneOrder):
    """Cuts lanes that have not as many samples as batches take of them."""

    @cached_property
    def starts(self) -> Int64s:
        return np.arange(self.lanes + 1) * self.blocks.rows // self.lanes


@pytest.mark.parametrize("broken", [NextLane, NeverMovesOn, EvenLanes])
def test_a_broken_order_is_noticed(broken: type[LaneOrder]) -> None:
    order = broken(SampleOrder(1010, 8, seed=1, epoch=0), batch_size=40, lanes=3)
    with pytest.raises((AssertionError, IndexError)):
        assert sorted(in_order(order)) == list(range(1010))


def test_an_order_that_depends_on_the_trainers_is_noticed() -> None:
    """Lanes by their number, or blocks permuted by it."""
    blocks = SampleOrder(1000, 8, seed=1, epoch=0)
    by_lanes = [in_order(LaneOrder(blocks, 40, 2 * trainers)) for trainers in (1, 2, 4)]
    by_blocks = [in_order(LaneOrder(replace(blocks, seed=trainers), 40, 4)) for trainers in (1, 2, 4)]
    for orders in (by_lanes, by_blocks):
        assert len({tuple(order) for order in orders}) == 3
