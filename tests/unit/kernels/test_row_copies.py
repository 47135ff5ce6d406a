"""Rows go where they belong and nothing else changes, with NumPy and natively."""

import numpy as np
import pytest

from bagpipe_hpc.kernels import row_copies as native_row_copies
from bagpipe_hpc.kernels.row_copies import NativeRowCopies, row_copies
from bagpipe_hpc.rows.copies import NumpyRowCopies, RowCopies


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
    for copy in (copies.scatter, copies.gather):
        with pytest.raises(IndexError, match=rf"places reach from .*{place}.*: must lie in 0 to 9"):
            copy(rows, places, records)
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(records, np.ones((2, 3)))


def test_larger_arrays_than_native_code_can_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_row_copies, "_MOST_ROWS", 9)
    copies, rows = NativeRowCopies(), table(10, 3)
    monkeypatch.setattr(copies, "_call", None)
    into = np.empty((1, 3), dtype=np.float32)
    copies.gather(rows, np.asarray([9]), into)
    copies.scatter(rows, np.asarray([0]), into)
    np.testing.assert_array_equal(rows[0], rows[9])


def test_memory_of_another_kind_is_refused() -> None:
    rows, places = table(10, 3), np.asarray([1, 2])
    for records in (np.empty((2, 3)), np.empty((3, 3), np.float32), np.empty((3, 2), np.float32).T):
        with pytest.raises(ValueError, match=r"native code needs contiguous float32 \[2, 3\]"):
            NativeRowCopies().gather(rows, places, records)
    with pytest.raises(ValueError, match=r"native code needs contiguous float32 \[5, 3\]"):
        NativeRowCopies().scatter(rows[::2], places, np.empty((2, 3), np.float32))


def test_the_backend_decides() -> None:
    assert isinstance(row_copies("native"), NativeRowCopies)
    assert isinstance(row_copies("reference"), NumpyRowCopies)
