"""Ids are what a dictionary would give."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from data_prep.formats.columns import Values
from data_prep.vocabularies.vocabulary import HashedIds, Vocabulary, VocabularyIds, counted_values, counts_of_ids
from tests.unit.data_prep.vocabularies.test_wide_values import assert_counted

VALUES = st.none() | st.integers(0, 6) | st.integers(0, (1 << 32) - 1)


def column(values: list[int | None]) -> pa.UInt32Array:
    return pa.array(values, pa.uint32())


@given(st.lists(VALUES, max_size=60), st.lists(VALUES, max_size=30), st.integers(1, 3))
def test_a_vocabulary_is_a_dictionary_by_count_then_value(
    counted: list[int | None], asked: list[int | None], min_count: int
) -> None:
    half = len(counted) // 2
    chunks = pa.chunked_array([column(counted[:half]), column(counted[half:])])
    vocabulary = Vocabulary((found := counted_values(chunks, min_count)).values)
    counts = Counter(value for value in counted if value is not None)
    frequent = sorted((-count, value) for value, count in counts.items() if count >= min_count)
    expected = {value: number for number, (_, value) in enumerate(frequent, start=1)}
    assert vocabulary.rows == len(frequent) + 1
    assert vocabulary.ids(column(asked)).tolist() == [expected.get(value, 0) for value in asked]
    assert_counted(found, counts, len(counted), min_count)


@pytest.mark.parametrize("buckets", [0, 3])
@given(counted=st.lists(VALUES, max_size=60), min_count=st.integers(1, 3))
def test_the_counts_of_ids_are_those_of_the_look_ups(counted: list[int | None], min_count: int, buckets: int) -> None:
    found = counted_values(pa.chunked_array([column(counted)]), min_count)
    ids = VocabularyIds(Values.HEX, TableVocabulary(found.values, buckets)).ids(column(counted))
    expected = np.bincount(ids, minlength=1 + buckets + len(found.values))
    assert counts_of_ids(found, buckets).tolist() == expected.tolist()


def test_a_large_vocabulary_with_values_that_fall_close_together() -> None:
    # A step of the multiplier's modular inverse sends neighbours to the same or the next slot: the longest probes.
    inverse = pow(0x9E3779B1, -1, 1 << 32)
    values = (np.arange(4_000, dtype=np.uint64) * np.uint64(inverse)).astype(np.uint32)
    vocabulary = Vocabulary(values[:2_000])
    assert np.array_equal(vocabulary.ids(pa.array(values[:2_000])), np.arange(1, 2_001))
    assert not vocabulary.ids(pa.array(values[2_000:])).any()


def test_hashed_ids_are_the_same_on_every_machine() -> None:
    hashed = HashedIds(1000)
    assert hashed.rows == 1000
    assert hashed.ids(column([None, 0, 1, 0xDEADBEEF])).tolist() == [
        0,
        1,
        *(1 + murmur(x) % 999 for x in (1, 0xDEADBEEF)),
    ]


@given(st.lists(VALUES), st.integers(2, 1 << 40))
def test_hashed_ids_stay_within_the_table(values: list[int | None], rows: int) -> None:
    ids = HashedIds(rows).ids(column(values))
    assert [number == 0 for number in ids] == [value is None for value in values]
    assert all(number < rows for number in ids)


@pytest.mark.parametrize("values", [[], [None, None]])
def test_columns_without_values(values: list[None]) -> None:
    vocabulary = Vocabulary(counted_values(pa.chunked_array([column(values)]), 1).values)
    assert vocabulary.rows == 1
    assert vocabulary.ids(column([5, None])).tolist() == [0, 0]


def murmur(key: int) -> int:
    """MurmurHash3's fmix64 as published."""
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = ((key ^ key >> 33) * multiplier) % (1 << 64)
    return key ^ key >> 33
