"""A stream gives the samples of an order, and reads each block once."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.sample_order import SampleOrder
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
