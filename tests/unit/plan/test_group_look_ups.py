"""A group of tables gets the look-ups of its own features, in its own row numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.group_look_ups import group_look_ups

FIRST_OF_ALL = (0, 10, 13, 33)
FEATURE_TABLES = (2, 0, 1, 2)


def in_groups(rows: Bags) -> list[Bags]:
    """Those of tables 0 and 2 (10 and 20 rows), and those of table 1."""
    both = group_look_ups(FEATURE_TABLES, (0, 2), (0, 10), FIRST_OF_ALL)
    assert both.features == (0, 1, 3)
    return [both.of(rows), group_look_ups(FEATURE_TABLES, (1,), (0,), FIRST_OF_ALL).of(rows)]


@given(st.integers(0, 6), st.integers(0, 2**32))
def test_each_look_up_goes_to_its_group(samples: int, seed: int) -> None:
    """As a loop over samples and features finds them, ragged ones too."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 4, (samples, 4))
    firsts = np.asarray(FIRST_OF_ALL)[list(FEATURE_TABLES)]
    bags = [[firsts[f] + generator.integers(0, 3, lengths[s, f]) for f in range(4)] for s in range(samples)]
    values = np.concatenate([np.empty(0, np.int64), *(rows for sample in bags for rows in sample)])
    of_both, of_one = in_groups(Bags.ragged(values.astype(np.int64), lengths))
    shifts = {0: 3, 1: 0, 3: 3}  # table 2 begins at row 13 of all rows, and at row 10 of its group
    expected = [bags[s][f] - shifts[f] for s in range(samples) for f in (0, 1, 3)]
    np.testing.assert_array_equal(of_both.values, np.concatenate([np.empty(0, np.int64), *expected]))
    np.testing.assert_array_equal(of_both.lengths, lengths[:, [0, 1, 3]])
    np.testing.assert_array_equal(of_one.values, np.concatenate([np.empty(0, np.int64), *(b[2] - 10 for b in bags)]))
    np.testing.assert_array_equal(of_one.lengths, lengths[:, [2]])


def test_one_id_a_sample_stays_one() -> None:
    rows = Bags.one_hot(np.asarray([[13, 9, 12, 32], [20, 0, 10, 14]]))
    of_both, of_one = in_groups(rows)
    assert of_both.offsets is None
    np.testing.assert_array_equal(of_both.values, [10, 9, 29, 17, 0, 11])
    np.testing.assert_array_equal(of_one.values, [2, 0])


def test_a_single_group_takes_the_batch_as_it_is() -> None:
    rows = Bags.one_hot(np.asarray([[13, 9, 12, 32]]))
    assert group_look_ups(FEATURE_TABLES, (0, 1, 2), FIRST_OF_ALL[:3], FIRST_OF_ALL).of(rows) is rows
