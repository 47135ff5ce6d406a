"""A cache holds whole records by slot: what is put in comes out, and an update changes nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cache.row_cache import RowCache

CPU = torch.device("cpu")
SLOTS, WIDTH = 10, 4

layouts = pytest.mark.parametrize(("state_columns", "keep_versions"), [(0, False), (1, False), (0, True), (2, True)])


def filled_cache(state_columns: int, keep_versions: bool) -> tuple[RowCache, np.ndarray]:
    """A cache whose every number differs, and its records `[SLOTS, W]`."""
    cache = RowCache(SLOTS, WIDTH, state_columns, CPU, keep_versions=keep_versions)
    width = WIDTH + state_columns + keep_versions
    records = np.arange(SLOTS * width, dtype=np.float32).reshape(SLOTS, width)
    cache.scatter(torch.arange(SLOTS), records)
    return cache, records


@layouts
@given(st.permutations(range(SLOTS)), st.integers(0, SLOTS))
def test_records_come_out_as_they_were_put_in(
    state_columns: int, keep_versions: bool, order: list[int], count: int
) -> None:
    cache, records = filled_cache(state_columns, keep_versions)
    slots = order[:count]
    records[slots] += 1000
    cache.scatter(torch.tensor(slots, dtype=torch.int64), records[slots])
    np.testing.assert_array_equal(cache.gather_records(torch.arange(SLOTS)), records)
    np.testing.assert_array_equal(cache.gather_records(torch.tensor(slots, dtype=torch.int64)), records[slots])


@layouts
def test_look_ups_read_weights_alone_and_may_repeat(state_columns: int, keep_versions: bool) -> None:
    cache, records = filled_cache(state_columns, keep_versions)
    slots = [7, 0, 7, 3]
    np.testing.assert_array_equal(cache.gather(torch.tensor(slots)).numpy(), records[slots, :WIDTH])


@layouts
def test_slots_start_at_zero_and_their_memory_is_told(state_columns: int, keep_versions: bool) -> None:
    cache = RowCache(SLOTS, WIDTH, state_columns, CPU, keep_versions=keep_versions)
    records = cache.gather_records(torch.arange(SLOTS))
    assert records.dtype == np.float32
    assert records.shape == (SLOTS, WIDTH + state_columns + keep_versions)
    assert not records.any()
    assert cache.bytes == records.nbytes


@layouts
def test_an_update_leaves_other_slots_and_columns_alone(state_columns: int, keep_versions: bool) -> None:
    cache, records = filled_cache(state_columns, keep_versions)
    cache.apply_sgd(torch.tensor([2, 5]), torch.ones(2, WIDTH), lr=0.5)
    records[[2, 5], :WIDTH] -= 0.5
    np.testing.assert_array_equal(cache.gather_records(torch.arange(SLOTS)), records)


def test_adagrad_uses_the_first_state_column() -> None:
    cache, records = filled_cache(state_columns=2, keep_versions=True)
    cache.apply_rowwise_adagrad(torch.tensor([5]), torch.full((1, WIDTH), 2.0), lr=0.5, eps=1.0)
    records[5, WIDTH] += 4.0
    expected = records[5, :WIDTH].astype(np.float64) - 0.5 * 2.0 / (np.sqrt(float(records[5, WIDTH])) + 1.0)
    found = cache.gather_records(torch.arange(SLOTS))
    np.testing.assert_allclose(found[5, :WIDTH], expected, rtol=1e-6)
    records[5, :WIDTH] = found[5, :WIDTH]
    np.testing.assert_array_equal(found, records)


def test_versions_travel_with_their_rows() -> None:
    cache, records = filled_cache(state_columns=1, keep_versions=True)
    cache.set_version(torch.tensor([1, 8]), 2**24)
    records[[1, 8], -1] = 2**24
    assert cache.versions(torch.tensor([8, 2, 1])).tolist() == [2**24, int(records[2, -1]), 2**24]
    other = RowCache(SLOTS, WIDTH, 1, CPU, keep_versions=True)
    other.scatter(torch.tensor([0]), cache.gather_records(torch.tensor([8])))
    assert other.versions(torch.tensor([0])).tolist() == [2**24]


def test_without_versions_none_are_kept() -> None:
    cache, records = filled_cache(state_columns=1, keep_versions=False)
    cache.set_version(torch.tensor([1]), 5)
    np.testing.assert_array_equal(cache.gather_records(torch.arange(SLOTS)), records)
    with pytest.raises(AssertionError, match=r"debug\.verify_rows"):
        cache.versions(torch.tensor([1]))
