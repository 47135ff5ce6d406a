"""Rows go where they belong and nothing else changes, with NumPy and natively."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.kernels.rows import row_copies as native_row_copies
from bagpipe_hpc.kernels.rows.row_copies import NativeRowCopies, row_copies
from bagpipe_hpc.rows.copies import NumpyRowCopies, RowCopies
from tests.instruction_sets import each_instruction_set


@pytest.fixture(params=[NumpyRowCopies, NativeRowCopies])
def copies(request: pytest.FixtureRequest) -> RowCopies:
    made: RowCopies = request.param()
    return made


def table(rows: int, width: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("width", [1, 5, 16, 17, 256])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_both_directions(copies: RowCopies, width: int, dtype: type, count: int) -> None:
    rows = table(1000, width)
    rng = np.random.default_rng(2)
    places = rng.integers(0, 1000, count).astype(dtype)
    into = np.empty((count, width), dtype=np.float32)
    copies.gather(rows, places, into)
    np.testing.assert_array_equal(into, rows[places])

    places = rng.permutation(1000)[:count].astype(dtype)
    records = table(count, width)
    expected = rows.copy()
    expected[places] = records
    copies.scatter(rows, places, records)
    np.testing.assert_array_equal(rows, expected)


ADDITIONS = given(st.lists(st.integers(0, 9), max_size=200), st.sampled_from([1, 3, 16, 17, 64]))


def check_additions(copies: RowCopies, places: list[int], width: int) -> None:
    """Bit for bit: numbers of very different sizes tell in which order they were added."""
    rng = np.random.default_rng(len(places))
    rows = rng.standard_normal((10, width)).astype(np.float32)
    records = (rng.standard_normal((len(places), width)) * 10.0 ** rng.integers(-6, 7, (len(places), 1))).astype("f4")
    expected = rows.copy()
    for place, record in zip(places, records, strict=True):
        expected[place] += record
    copies.add(rows, np.asarray(places, dtype=np.int32), records)
    np.testing.assert_array_equal(rows, expected)


@ADDITIONS
def test_every_record_is_added_in_its_turn_by_numpy(places: list[int], width: int) -> None:
    check_additions(NumpyRowCopies(), places, width)


@ADDITIONS
def test_every_record_is_added_in_its_turn_natively(places: list[int], width: int) -> None:
    for _ in each_instruction_set("row_operations"):
        check_additions(NativeRowCopies(), places, width)


def test_a_part_of_a_table(copies: RowCopies) -> None:
    """What a server holds is a range of rows of its host's memory."""
    rows = table(100, 4)
    expected = rows.copy()
    expected[30:60][[3, 1]] = 7.0
    copies.scatter(rows[30:60], np.asarray([3, 1]), np.full((2, 4), 7.0, dtype=np.float32))
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("place", [-1, 10, 2**31 + 1, 2**32 + 3, -(2**40)])
def test_a_place_outside_the_table_is_refused_before_anything_is_copied(copies: RowCopies, place: int) -> None:
    rows, records, places = table(10, 3), np.ones((2, 3), dtype=np.float32), np.asarray([4, place])
    before = rows.copy()
    for copy in (copies.scatter, copies.gather, copies.add):
        with pytest.raises(IndexError, match=rf"places reach from .*{place}.*: must lie in 0 to 9"):
            copy(rows, places, records)
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(records, np.ones((2, 3)))


def test_larger_arrays_than_native_code_can_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_row_copies, "_MOST_ROWS", 9)
    copies, rows = NativeRowCopies(), table(10, 3)
    monkeypatch.setattr(copies, "_copy", None)
    monkeypatch.setattr(copies, "_add", None)
    into = np.empty((1, 3), dtype=np.float32)
    copies.gather(rows, np.asarray([9]), into)
    copies.scatter(rows, np.asarray([0]), into)
    np.testing.assert_array_equal(rows[0], rows[9])
    copies.add(rows, np.asarray([0]), into)
    np.testing.assert_array_equal(rows[0], 2 * rows[9])


def test_memory_of_another_kind_is_refused() -> None:
    rows, places = table(10, 3), np.asarray([1, 2])
    for records in (np.empty((2, 3)), np.empty((3, 3), np.float32), np.empty((3, 2), np.float32).T):
        with pytest.raises(ValueError, match=r"native code needs contiguous float32 \[2, 3\]"):
            NativeRowCopies().gather(rows, places, records)
    with pytest.raises(ValueError, match=r"native code needs contiguous float32 \[5, 3\]"):
        NativeRowCopies().scatter(rows[::2], places, np.empty((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"native code needs contiguous float32 \[2, 3\]"):
        NativeRowCopies().add(rows, places, np.empty((1, 3), np.float32))


def test_memory_that_is_only_to_be_read_is_not_written(copies: RowCopies) -> None:
    rows, records, places = table(10, 3), table(2, 3), np.asarray([1, 2])
    before = rows.copy(), records.copy()
    rows.flags.writeable = records.flags.writeable = False
    for copy in (copies.scatter, copies.gather, copies.add):
        with pytest.raises(ValueError, match="read-only"):
            copy(rows, places, records)
    np.testing.assert_array_equal(rows, before[0])
    np.testing.assert_array_equal(records, before[1])


def test_rows_of_no_numbers_are_refused() -> None:
    rows, places, records = table(10, 0), np.asarray([1, 2]), table(2, 0)
    for copy in (NativeRowCopies().scatter, NativeRowCopies().gather, NativeRowCopies().add):
        with pytest.raises(ValueError, match=r"rows of \[10, 0\]"):
            copy(rows, places, records)


def test_the_backend_decides() -> None:
    assert isinstance(row_copies("native"), NativeRowCopies)
    assert isinstance(row_copies("reference"), NumpyRowCopies)
