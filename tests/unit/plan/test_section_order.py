"""Whole batches of one kind of samples, then of another: each sample once; trainers read their own lanes alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.plan.sample_order import SampleOrder, ShardBlocks, require_each_once
from bagpipe_hpc.plan.section_order import Section, SectionLayout, SectionOrder, layout_of
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.policies.fae.order import hot_cold_order
from bagpipe_hpc.storage.shards.sample_stream import SampleStream
from tests.drawing import share_of
from tests.unit.planning.policies.hot_samples import in_turns


def order_of(hot: np.ndarray, batch_size: int, share: int, lanes: int, block_rows: int = 16) -> SectionOrder:
    """Hot samples and others in turn; with lanes if there are several."""
    default = ShardBlocks(
        hot.size, block_rows, 7, 1, shuffle=True, shard_rows=(hot.size // 3, hot.size - hot.size // 3)
    )
    order = hot_cold_order(default, in_turns(batch_size, share), lambda first, last: hot[first:last])
    return order.with_lanes(batch_size, lanes) if lanes > 1 else order


drawn = st.tuples(
    st.integers(0, 2**32), st.integers(3, 200), st.integers(1, 30), st.integers(1, 100), st.integers(1, 5)
)


@settings(max_examples=share_of(60))
@given(drawn)
def test_batches_are_of_one_kind_and_have_each_sample_once(given_order: tuple[int, int, int, int, int]) -> None:
    seed, count, batch_size, share, lanes = given_order
    rng = np.random.default_rng(seed)
    hot = rng.random(count) < rng.random()
    order = order_of(hot, batch_size, share, min(lanes, batch_size))
    require_each_once(order)
    numbers = np.concatenate(list(order.used()))
    kinds = [set(hot[numbers[first : first + batch_size]].tolist()) for first in range(0, count, batch_size)]
    assert sum(len(kind) > 1 for kind in kinds) <= 1


@settings(max_examples=share_of(60))
@given(drawn, st.integers(1, 4))
def test_readers_find_the_samples_in_their_order(given_order: tuple[int, int, int, int, int], slices: int) -> None:
    """Slice by slice; and what is said of a piece's use is what parts of it are named."""
    seed, count, batch_size, share, lanes = given_order
    rng = np.random.default_rng(seed)
    order = order_of(rng.random(count) < rng.random(), batch_size, share, min(lanes, batch_size))
    numbers = np.concatenate(list(order.used()))
    streams = [SampleStream(np.arange, order) for _ in range(slices)]
    layout = SectionLayout(order)
    for first in range(0, count, batch_size):
        bounds = slice_bounds(min(batch_size, count - first), slices)
        read = [
            stream.read(first + begin, first + end)
            for stream, begin, end in zip(streams, bounds[:-1], bounds[1:], strict=True)
        ]
        np.testing.assert_array_equal(np.concatenate(read), numbers[first : first + batch_size])
    begin, end = sorted(rng.integers(0, count, 2, endpoint=True).tolist())
    named = np.zeros(len(layout.lane_of), dtype=np.int64)
    for piece, first, last in layout.parts(begin, end):
        named[piece] += last - first
    assert named.tolist() == [layout.used(piece, begin, end) for piece in range(named.size)]
    assert np.diff(layout.bounds).sum() == count


def rows_read(order: SectionOrder, trainer: int, trainers: int, batch_size: int) -> int:
    """Samples of all blocks that a trainer reads for its slices of an epoch."""
    read = 0

    def column(first: int, last: int) -> np.ndarray:
        nonlocal read
        read += last - first
        return np.arange(first, last)

    stream = SampleStream(column, order)
    for first in range(0, order.rows, batch_size):
        bounds = slice_bounds(min(batch_size, order.rows - first), trainers)
        stream.read(first + bounds[trainer], first + bounds[trainer + 1])
    return read


def test_trainers_read_their_own_lanes_alone() -> None:
    """Each kind once, and little more; without lanes all of them read all."""
    hot = np.random.default_rng(3).random(40_000) < 0.4
    for lanes, least, most in ((1, 1.9, 2.05), (8, 0.5, 0.6)):
        order = order_of(hot, 64, 25, lanes, block_rows=200)
        shares = [rows_read(order, trainer, 4, 64) / hot.size for trainer in range(4)]
        assert all(least <= share < most for share in shares), shares


def test_sections_that_repeat_samples_are_noticed() -> None:
    kinds = tuple(SampleOrder(rows, 4, 1, 0) for rows in (8, 8))  # the same samples twice
    order = SectionOrder(kinds, (Section(0, 0, 8), Section(1, 0, 8)))
    assert order.rows == 16
    assert isinstance(layout_of(order), SectionLayout)
    numbers = np.concatenate(list(order.used()))
    assert sorted(numbers.tolist()) == sorted([*range(8), *range(8)])
