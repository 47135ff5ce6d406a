"""An order is a permutation in blocks, and nothing but (seed, epoch) decides it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan import sample_order
from bagpipe_hpc.plan.sample_order import SampleOrder, require_each_once

orders = st.builds(
    SampleOrder,
    rows=st.integers(0, 300),
    block_rows=st.integers(1, 50),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 5),
    shuffle=st.booleans(),
)


def samples(order: SampleOrder) -> np.ndarray:
    """All samples in order."""
    blocks = [order.block_range(block)[0] + order.inside_block(block) for block in order.blocks().tolist()]
    return np.concatenate([np.empty(0, dtype=np.int64), *blocks])


@given(orders)
def test_every_sample_is_used_once(order: SampleOrder) -> None:
    np.testing.assert_array_equal(np.sort(samples(order)), np.arange(order.rows))


@given(orders)
def test_blocks_are_neighbours(order: SampleOrder) -> None:
    """One read of a contiguous piece serves a block; all but the last are of full size."""
    ranges = [order.block_range(block) for block in sorted(order.blocks().tolist())]
    assert [first for first, _ in ranges] == list(range(0, order.rows, order.block_rows))
    assert all(last == min(first + order.block_rows, order.rows) for first, last in ranges)


@given(orders)
def test_the_same_seed_and_epoch_give_the_same_order(order: SampleOrder) -> None:
    again = SampleOrder(order.rows, order.block_rows, order.seed, order.epoch, order.shuffle)
    np.testing.assert_array_equal(samples(order), samples(again))


@given(orders)
def test_without_shuffling_it_is_the_shards_order(order: SampleOrder) -> None:
    if not order.shuffle:
        np.testing.assert_array_equal(samples(order), np.arange(order.rows))


def test_seeds_epochs_and_blocks_are_shuffled_apart() -> None:
    """Of 64 blocks of 64 samples, no two shuffles are alike: not within an order, not between orders."""
    order = SampleOrder(4096, 64, seed=1, epoch=0)
    others = [SampleOrder(4096, 64, seed=1, epoch=1), SampleOrder(4096, 64, seed=2, epoch=0)]
    shuffles = [order.blocks(), *(order.inside_block(block) for block in range(64))]
    for other in others:
        shuffles += [other.blocks(), *(other.inside_block(block) for block in range(64))]
    shuffles.append(np.arange(64))
    assert len({shuffle.tobytes() for shuffle in shuffles}) == len(shuffles)


def test_every_block_comes_first_in_some_epoch() -> None:
    firsts = {int(SampleOrder(80, 10, seed=3, epoch=epoch).blocks()[0]) for epoch in range(200)}
    assert firsts == set(range(8))


class Exchanging(SampleOrder):
    """Uses another sample in the place of the last one of its second block."""

    other = 0

    def inside_block(self, block: int) -> np.ndarray:
        inside = super().inside_block(block)
        if block == 1:
            inside[inside == inside.size - 1] = self.other - self.block_range(block)[0]
        return inside


@given(orders)
def test_a_whole_order_is_accepted(order: SampleOrder) -> None:
    require_each_once(order)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (3, "100 samples uses sample 3 several times; use each sample once"),
        (98, "uses sample 39 not at all"),
        (-1, "uses sample -1, which there is not"),
        (100, "uses sample 100, which there is not"),
    ],
)
def test_a_sample_in_the_place_of_another_is_named(other: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of samples, and of those of each block, is right."""
    monkeypatch.setattr(Exchanging, "other", other)
    with pytest.raises(PlanError, match=told):
        require_each_once(Exchanging(100, 20, seed=1, epoch=0))


def test_a_huge_order_is_refused_without_a_byte_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchanging, "other", 3)
    monkeypatch.setattr(sample_order, "_NAMED_UP_TO", 99)
    with pytest.raises(PlanError, match="uses some samples twice, or leaves some out; use each sample once"):
        require_each_once(Exchanging(100, 20, seed=1, epoch=0))
