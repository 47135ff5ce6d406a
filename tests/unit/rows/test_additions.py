"""A call of additions is cut into rounds: the first record of each place, then the second, and so on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.additions import distinct_rounds, turns_of


def assert_in_rounds(places: list[int]) -> None:
    turns = [places[:number].count(place) for number, place in enumerate(places)]
    assert turns_of(np.asarray(places, dtype=np.int64)).tolist() == turns
    rounds = list(distinct_rounds(np.asarray(places, dtype=np.int64)))
    if len(set(places)) == len(places):
        assert rounds == [None]
        return
    chosen = [sorted(found.tolist()) for found in rounds if found is not None]
    assert chosen == [[number for number, own in enumerate(turns) if own == turn] for turn in range(max(turns) + 1)]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_a_round_has_the_next_record_of_each_place(places: list[int]) -> None:
    assert_in_rounds(places)


def test_many_records_of_a_place_keep_their_order() -> None:
    """More than a sort leaves in their order by chance."""
    assert_in_rounds(np.random.default_rng(1).integers(0, 7, 400).tolist())
