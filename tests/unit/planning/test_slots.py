"""A pool of slots behaves as a set of free numbers, and knows the most that were ever in use."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots, SlotPool


@given(st.data())
def test_a_slot_is_in_use_once_and_the_peak_is_exact(data: st.DataObject) -> None:
    """Take and give in any sizes, beyond what the pool first makes room for."""
    pool = SlotPool("shared")
    in_use: list[int] = []
    peak = 0
    shuffle = random.Random(data.draw(st.integers())).shuffle
    for _ in range(data.draw(st.integers(1, 12))):
        if in_use and data.draw(st.booleans()):
            kept = data.draw(st.integers(0, len(in_use)))
            pool.give(np.asarray(in_use[kept:], dtype=np.int32))
            del in_use[kept:]
        else:
            slots = pool.take(data.draw(st.sampled_from([0, 1, 2, 7, 900, 3000])))
            assert slots.dtype == np.int32
            in_use += slots.tolist()
        shuffle(in_use)
        peak = max(peak, len(in_use))
        assert len(set(in_use)) == len(in_use)
        assert all(0 <= slot < peak for slot in in_use)
        assert pool.peak == peak


def test_slots_given_back_are_taken_first_the_latest_first() -> None:
    pool = SlotPool("shared")
    assert pool.take(4).tolist() == [0, 1, 2, 3]
    pool.give(np.asarray([1, 3], dtype=np.int32))
    assert pool.take(3).tolist() == [3, 1, 4]


def test_the_last_slot_is_handed_out_and_no_further_one() -> None:
    pool = SlotPool("private (trainer 1)", capacity=5)
    assert sorted(pool.take(5).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(CapacityError, match=r"private \(trainer 1\) slots are used up: 5 exist, 6 are needed"):
        pool.take(1)
    pool.give(np.asarray([2], dtype=np.int32))
    assert pool.take(1).tolist() == [2]


def test_an_unlimited_pool_outlasts_any_table() -> None:
    pool = SlotPool("shared", UNLIMITED)
    pool.take(1_000_000)
    assert pool.peak == 1_000_000


def test_reserved_slots_are_at_the_end_of_each_area_of_copies() -> None:
    slots = CacheSlots(20, 5, 6)
    assert slots.reserved_slots == (range(7, 10), range(17, 20))
    assert (slots.total, slots.held) == (25, 19)
    assert CacheSlots(20, 5).reserved_slots == ()
    assert CacheSlots(6, 5, 6).reserved_slots == (range(3), range(3, 6))


@pytest.mark.parametrize(("most", "reserved"), [(100, 6), (6, 6), (5, 4), (1, 0), (0, 0)])
def test_fewer_slots_are_reserved_of_both_areas(most: int, reserved: int) -> None:
    slots = CacheSlots(20, 5, 6).reserving(most)
    assert slots == CacheSlots(14 + reserved, 5, reserved)
    assert slots.held == 19
