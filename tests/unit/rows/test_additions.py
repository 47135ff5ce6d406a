"""A call of additions is cut into rounds in which no place comes twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.additions import distinct_rounds


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
