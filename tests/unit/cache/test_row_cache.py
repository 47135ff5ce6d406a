"""A cache holds whole records by slot: what is put in comes out, and an update changes nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.record import RowRecord

CPU = torch.device("cpu")
SLOTS, WIDTH = 10, 4

A_ROW = StateColumns("sum", per_weight=False)
A_WEIGHT = StateColumns("mean", per_weight=True)
RECORDS = [RowRecord(WIDTH, state, version) for state, version in (((), False), ((A_ROW,), False), ((), True))]
RECORDS += [RowRecord(WIDTH, (A_WEIGHT, A_WEIGHT), True)]
layouts = pytest.mark.parametrize("record", RECORDS)


def new_cache(record: RowRecord, slots: int = SLOTS) -> RowCache:
    return RowCache(slots, record, row_operations("auto", CPU), CPU)


def filled_cache(record: RowRecord) -> tuple[RowCache, np.ndarray]:
    """A cache whose every number differs, and its records `[SLOTS, W]`."""
    cache = new_cache(record)
    records = np.arange(SLOTS * record.width, dtype=np.float32).reshape(SLOTS, record.width)
    cache.scatter(all_slots(), records)
    return cache, records


def slots_of(slots: list[int]) -> Tensor:
    return torch.tensor(slots, dtype=torch.int32)


def all_slots() -> Tensor:
    return torch.arange(SLOTS, dtype=torch.int32)


@layouts
@given(st.permutations(range(SLOTS)), st.integers(0, SLOTS))
def test_records_come_out_as_they_were_put_in(record: RowRecord, order: list[int], count: int) -> None:
    cache, records = filled_cache(record)
    slots = order[:count]
    records[slots] += 1000
    cache.scatter(slots_of(slots), records[slots])
    np.testing.assert_array_equal(cache.gather_records(all_slots()), records)
    np.testing.assert_array_equal(cache.gather_records(slots_of(slots)), records[slots])


def test_a_slot_tells_the_row_that_it_holds() -> None:
    cache = new_cache(RECORDS[0])
    rows = np.asarray([10**10, 7, 3])
    cache.scatter(slots_of([4, 9, 0]), np.zeros((3, WIDTH), np.float32), rows)
    cache.scatter(slots_of([9]), np.zeros((1, WIDTH), np.float32), np.asarray([5]))
    assert cache.rows_in(slots_of([0, 9, 4])).tolist() == [3, 5, 10**10]
    whole = RowCache(SLOTS, RECORDS[0], row_operations("auto", CPU), CPU, holds_all=True)
    assert whole.rows_in(slots_of([0, 9, 4])).tolist() == [0, 9, 4]


@layouts
def test_look_ups_read_weights_alone_and_may_repeat(record: RowRecord) -> None:
    cache, records = filled_cache(record)
    slots = [7, 0, 7, 3]
    np.testing.assert_array_equal(cache.gather(slots_of(slots)).numpy(), records[slots, :WIDTH])
    found = cache.look_up(slots_of([3, 0, 7]), slots_of([2, 1, 2, 0]))
    np.testing.assert_array_equal(found.numpy(), records[slots, :WIDTH])


@layouts
def test_slots_start_at_zero_and_their_memory_is_told(record: RowRecord) -> None:
    cache = new_cache(record)
    records = cache.gather_records(all_slots())
    assert records.dtype == np.float32
    assert records.shape == (SLOTS, record.width)
    assert not records.any()
    assert cache.bytes == records.nbytes


def test_state_lies_between_weights_and_version() -> None:
    cache, records = filled_cache(RECORDS[-1])
    np.testing.assert_array_equal(cache.weights.numpy(), records[:, :WIDTH])
    for number, part in enumerate(cache.state, 1):
        np.testing.assert_array_equal(part.numpy(), records[:, number * WIDTH : (number + 1) * WIDTH])


def test_versions_travel_with_their_rows() -> None:
    cache, records = filled_cache(RowRecord(WIDTH, (A_ROW,), has_version=True))
    cache.set_version(slots_of([1, 8]), 2**24)
    records[[1, 8], -1] = 2**24
    assert cache.versions(slots_of([8, 2, 1])).tolist() == [2**24, int(records[2, -1]), 2**24]
    other = new_cache(RowRecord(WIDTH, (A_ROW,), has_version=True))
    other.scatter(slots_of([0]), cache.gather_records(slots_of([8])))
    assert other.versions(slots_of([0])).tolist() == [2**24]


def test_without_versions_none_are_kept() -> None:
    cache, records = filled_cache(RowRecord(WIDTH, (A_ROW,), has_version=False))
    cache.set_version(slots_of([1]), 5)
    np.testing.assert_array_equal(cache.gather_records(all_slots()), records)
    with pytest.raises(AssertionError, match=r"debug\.verify_rows"):
        cache.versions(slots_of([1]))


def test_more_slots_than_numbers_are_refused() -> None:
    with pytest.raises(CapacityError, match="2147483648 rows in one cache"):
        new_cache(RECORDS[0], slots=2**31)
