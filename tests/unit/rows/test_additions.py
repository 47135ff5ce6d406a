"""Records are added as `numpy.add.at` adds them, whatever the places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.additions import add_rows, distinct_rounds
from bagpipe_hpc.rows.copies import NumpyRowCopies


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 3))
def test_every_record_is_added_in_its_turn(places: list[int], width: int) -> None:
    """Bit for bit: numbers of very different sizes tell in which order they were added."""
    rng = np.random.default_rng(len(places))
    rows = rng.standard_normal((10, width)).astype(np.float32)
    records = (rng.standard_normal((len(places), width)) * 10.0 ** rng.integers(-6, 7, (len(places), 1))).astype("f4")
    expected = rows.copy()
    for place, record in zip(places, records, strict=True):
        expected[place] += record
    add_rows(NumpyRowCopies(), rows, np.asarray(places, dtype=np.int32), records)
    np.testing.assert_array_equal(rows, expected)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_no_round_has_a_place_twice(places: list[int]) -> None:
    rounds = list(distinct_rounds(np.asarray(places, dtype=np.int64)))
    if len(set(places)) == len(places):
        assert rounds == [None]
        return
    chosen = [found.tolist() for found in rounds if found is not None]
    assert sorted(number for found in chosen for number in found) == list(range(len(places)))
    for found in chosen:
        assert len({places[number] for number in found}) == len(found)


def test_a_place_outside_the_table_is_refused() -> None:
    rows = np.zeros((3, 2), dtype=np.float32)
    with pytest.raises(IndexError, match="places reach from 0 to 3"):
        add_rows(NumpyRowCopies(), rows, np.asarray([0, 3]), np.ones((2, 2), dtype=np.float32))
    assert not rows.any()
