"""First weights depend on (seed, table, id) alone, and are uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.rows.initial_values import initial_weights
from bagpipe_hpc.rows.partition import RoundRobinPartition, table_offsets

TABLES = (1, 40, 7, 200)
OFFSETS = table_offsets(TABLES)
ROWS = np.arange(OFFSETS[-1])
GOLDEN = 0x9E3779B97F4A7C15


def split_mix(state: int) -> int:
    """SplitMix64's output function in Python's integers."""
    mask = 2**64 - 1
    state &= mask
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


def weight(seed: int, table: int, row: int, column: int, table_rows: int) -> np.float32:
    """One weight, from its definition."""
    key = split_mix(split_mix(seed + table * GOLDEN) + row * GOLDEN)
    unit = (split_mix(key + (column + 1) * GOLDEN) >> 40) / 2**23 - 1
    return np.float32(unit) * np.float32(1 / np.sqrt(table_rows))


@given(st.integers(0, 2**63 - 1), st.integers(1, 5))
def test_every_weight_is_what_the_definition_says(seed: int, embedding_dim: int) -> None:
    rows = np.asarray([0, 1, 40, 41, 47, 48, 247])
    found = initial_weights(rows, OFFSETS, embedding_dim, seed)
    places = [(0, 0), (1, 0), (1, 39), (2, 0), (2, 6), (3, 0), (3, 199)]
    expected = [[weight(seed, t, i, d, TABLES[t]) for d in range(embedding_dim)] for t, i in places]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(expected, dtype=np.float32))


@given(st.lists(st.integers(0, int(OFFSETS[-1]) - 1), max_size=30), st.integers(0, 2**32))
def test_grouping_does_not_matter(rows: list[int], seed: int) -> None:
    everything = initial_weights(ROWS, OFFSETS, 4, seed)
    chosen = np.asarray(rows, dtype=np.int64)
    np.testing.assert_array_equal(initial_weights(chosen, OFFSETS, 4, seed), everything[chosen])


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_any_number_of_servers_holds_the_same_tables(servers: int) -> None:
    partition = RoundRobinPartition(ROWS.size, servers)
    tables = np.empty((ROWS.size, 3), dtype=np.float32)
    for server in range(servers):
        rows = partition.rows_of(server, 0, partition.rows_on(server))
        tables[rows] = initial_weights(rows, OFFSETS, 3, seed=9)
    np.testing.assert_array_equal(tables, initial_weights(ROWS, OFFSETS, 3, seed=9))


def test_other_tables_do_not_matter() -> None:
    first = initial_weights(np.arange(5, 105), table_offsets((5, 100, 1)), 8, seed=4)
    moved = initial_weights(np.arange(60, 160), table_offsets((60, 100)), 8, seed=4)
    np.testing.assert_array_equal(first, moved)


def test_a_wider_row_begins_with_the_narrower_one() -> None:
    np.testing.assert_array_equal(
        initial_weights(ROWS, OFFSETS, 16, seed=2)[:, :5], initial_weights(ROWS, OFFSETS, 5, seed=2)
    )


def test_weights_are_uniform_within_the_tables_bound() -> None:
    """160,000 draws: the standard error of their mean is 0.0015, that of their variance 0.0008."""
    rows = 10_000
    units = initial_weights(np.arange(rows), table_offsets((rows,)), 16, seed=1) * np.sqrt(rows)
    assert units.min() >= -1
    assert units.max() <= 1
    assert abs(units.mean()) < 0.006
    assert abs(units.var() - 1 / 3) < 0.004
    tenths = np.histogram(units, bins=10, range=(-1, 1))[0]
    assert np.abs(tenths / units.size - 0.1).max() < 0.004
    columns = np.corrcoef(units, rowvar=False)
    assert np.abs(columns - np.eye(16)).max() < 0.05


@pytest.mark.parametrize("bound", [0.01, 2.5])
def test_a_bound_is_that_of_all_tables(bound: float) -> None:
    """The same draws, of another width."""
    units = initial_weights(ROWS, table_offsets((1,) * len(ROWS)), 4, seed=3)  # 1/sqrt(1)
    np.testing.assert_array_equal(
        initial_weights(ROWS, table_offsets((1,) * len(ROWS)), 4, seed=3, bound=bound), units * np.float32(bound)
    )
    found = initial_weights(ROWS, OFFSETS, 4, seed=3, bound=bound)
    assert found.dtype == np.float32
    of_tables = initial_weights(ROWS, OFFSETS, 4, seed=3)
    widths = np.sqrt(np.diff(OFFSETS)).repeat(np.diff(OFFSETS))[:, None]
    np.testing.assert_allclose(found, of_tables * widths * bound, rtol=1e-5)


def test_rows_tables_and_seeds_differ() -> None:
    offsets = table_offsets((500, 500))
    rows = np.concatenate([initial_weights(np.arange(1000), offsets, 4, seed) for seed in (1, 2, 3)])
    assert len({row.tobytes() for row in rows}) == 3000
