"""Ids of integers of 64 bits and of texts are what a dictionary would give."""

import hashlib
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.vocabularies.vocabulary import HashedIds
from data_prep.vocabularies.wide_values import (
    CountedValues,
    IntegerVocabulary,
    TextVocabulary,
    as_column,
    counted_values,
)

INTEGERS = st.none() | st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.none() | st.sampled_from(["", "a", "b", "é", "Z"]) | st.text(st.characters(codec="utf-8"), max_size=4)
KINDS = [(pa.int64(), INTEGERS, IntegerVocabulary), (pa.string(), TEXTS, TextVocabulary)]


def assert_counted(found: CountedValues, counts: Counter, look_ups: int, min_count: int) -> None:
    assert found.look_ups == look_ups
    assert found.counts.tolist() == [counts[value] for value in found.values.tolist()]
    rare = [value for value in counts if counts[value] < min_count]
    assert found.rare.values.tolist() == sorted(rare)
    assert found.rare.counts.tolist() == [counts[value] for value in sorted(rare)]


@pytest.mark.parametrize(("kind", "values", "vocabulary"), KINDS)
@given(data=st.data(), min_count=st.integers(1, 3), skipped=st.integers(0, 3))
def test_a_vocabulary_is_a_dictionary_by_count_then_value(
    kind: pa.DataType,
    values: st.SearchStrategy[object],
    vocabulary: type,
    data: st.DataObject,
    min_count: int,
    skipped: int,
) -> None:
    counted, asked = data.draw(st.lists(values, max_size=40)), data.draw(st.lists(values, max_size=20))
    chunks = pa.chunked_array([pa.array(counted[:7], kind), pa.array(counted[7:], kind)])
    found = counted_values(chunks, min_count)
    known = found.values
    counts = Counter(value for value in counted if value is not None)
    assert_counted(found, counts, len(counted), min_count)
    frequent = [value for value in counts if counts[value] >= min_count]
    order = sorted(frequent, key=lambda value: (-counts[value], value.encode() if isinstance(value, str) else value))
    assert list(known) == order
    ids = vocabulary(known)
    assert ids.rows == len(order) + 1
    expected = {value: number for number, value in enumerate(order, start=1)}
    column = pa.array(asked + counted, kind).slice(skipped)
    assert ids.ids(column).tolist() == [expected.get(value, 0) for value in (asked + counted)[skipped:]]


@given(st.lists(INTEGERS), st.lists(TEXTS), st.integers(2, 1 << 40))
def test_hashed_ids_stay_within_the_table(integers: list[int | None], texts: list[str | None], rows: int) -> None:
    for values, kind in ((integers, pa.int64()), (texts, pa.string())):
        ids = HashedIds(rows).ids(pa.array(values, kind))
        assert [number == 0 for number in ids] == [value is None for value in values]
        assert all(number < rows for number in ids)


def test_hashed_ids_are_the_same_on_every_machine() -> None:
    def mixed(key: int) -> int:
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            key = ((key ^ key >> 33) * multiplier) % (1 << 64)
        return 1 + (key ^ key >> 33) % 999

    key = int.from_bytes(hashlib.blake2b("é".encode(), digest_size=8).digest(), "little")
    assert HashedIds(1000).ids(pa.array(["é", None, "é"])).tolist() == [mixed(key), 0, mixed(key)]
    assert HashedIds(1000).ids(pa.array([-1, 5], pa.int64())).tolist() == [mixed((1 << 64) - 1), mixed(5)]


def test_all_texts_of_a_table_may_have_more_than_2_gib() -> None:
    """As a column their offsets have 64 bits, and they have the ids of the texts of rows."""
    texts = np.array(["a", "é", "b"], object)
    column = as_column(texts)
    assert column.type == pa.large_string()
    for ids in (HashedIds(1000).ids, TextVocabulary(np.array(["b", "a"], object)).ids):
        assert ids(column).tolist() == ids(pa.array(texts, pa.string())).tolist()


def test_an_empty_vocabulary() -> None:
    assert IntegerVocabulary(np.array([], dtype=np.int64)).ids(pa.array([5, None], pa.int64())).tolist() == [0, 0]
    assert TextVocabulary(np.array([], dtype=object)).ids(pa.array(["a", None])).tolist() == [0, 0]


@pytest.mark.parametrize("first", [-(1 << 63), -3, 0, (1 << 63) - 6])
def test_values_that_lie_close_are_told_from_all_others(first: int) -> None:
    known = [first + offset for offset in (4, 0, 1, 5)]
    asked = [*range(first, first + 6), None, -(1 << 63), -1, 0, (1 << 63) - 1]
    ids = IntegerVocabulary(np.array(known, dtype=np.int64)).ids(pa.array(asked, pa.int64()))
    assert ids.tolist() == [known.index(value) + 1 if value in known else 0 for value in asked]
