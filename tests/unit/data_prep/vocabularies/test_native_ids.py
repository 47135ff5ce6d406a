"""Native vocabularies and ids are those of their definition."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.kernels.text.value_ids import ValueCounter
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from data_prep.formats.columns import Values
from data_prep.formats.layout import IdRule, Table
from data_prep.vocabularies import native_ids, vocabulary
from data_prep.vocabularies.wide_values import CountedValues
from tests.drawing import share_of

pytestmark = pytest.mark.skipif(not is_built("value_ids"), reason="native code was not built")

VALUES = st.none() | st.integers(0, 6) | st.integers(0, (1 << 32) - 1)
COLUMNS = st.lists(VALUES, max_size=200)


def natively_counted(counted: pa.ChunkedArray, min_count: int) -> CountedValues:
    counter = ValueCounter()
    look_ups = native_ids.count_values(counter, counted.chunks)
    return vocabulary.by_count(*counter.tally(1), min_count, look_ups)


def assert_equal(found: CountedValues, expected: CountedValues) -> None:
    assert found.values.dtype == found.rare.values.dtype == np.uint32
    assert np.array_equal(found.values, expected.values)
    assert np.array_equal(found.counts, expected.counts)
    assert np.array_equal(found.rare.values, expected.rare.values)
    assert np.array_equal(found.rare.counts, expected.rare.counts)
    assert found.look_ups == expected.look_ups


def tables(vocabularies: Sequence[object]) -> list[Table]:
    return [Table(f"T{number}", Values.HEX, (f"T{number}",)) for number in range(len(vocabularies))]


def hashed_to(rows: int) -> IdRule:
    return IdRule(1, None, rows)


def drawn(values: np.ndarray, data: st.DataObject) -> TableVocabulary:
    """A vocabulary of the values, perhaps with unseen buckets and free ids."""
    buckets, gaps = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2))
    places = data.draw(st.permutations(range(len(values) + gaps)))[:gaps]
    return TableVocabulary(values, buckets, np.sort(np.array(places, dtype=np.int64)) + 1 + buckets)


def column(values: list[int | None]) -> pa.UInt32Array:
    return pa.array(values, pa.uint32())


@given(st.lists(COLUMNS, max_size=3), st.integers(0, 9), st.integers(1, 3))
def test_counted_values(chunks: list[list[int | None]], skipped: int, min_count: int) -> None:
    counted = pa.chunked_array([column(chunk).slice(skipped) for chunk in chunks], pa.uint32())
    assert_equal(natively_counted(counted, min_count), vocabulary.counted_values(counted, min_count))


def test_a_counting_table_that_grows_several_times() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 32, 40_000, dtype=np.uint32)
    counted = pa.chunked_array([pa.array(np.concatenate([values, values[:1000], values[:10]]))])
    for min_count in (1, 2, 3):
        assert_equal(natively_counted(counted, min_count), vocabulary.counted_values(counted, min_count))


@settings(max_examples=share_of(50), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, (1 << 32) - 1) | st.integers(0, 9), unique=True, max_size=60), max_size=3),
    st.data(),
    st.integers(0, 9),
    st.sampled_from([np.int32, np.int64]),
)
def test_ids_by_vocabulary_and_by_hashing(
    vocabularies: list[list[int]], data: st.DataObject, skipped: int, dtype: type
) -> None:
    known = [st.none() | st.integers(0, 9) | st.sampled_from(values or [0]) for values in vocabularies]
    rows = data.draw(st.lists(st.tuples(*known), max_size=150))
    columns = [column([row[table] for row in rows]).slice(skipped) for table in range(len(known))]
    values = [np.array(table, dtype=np.uint32) for table in vocabularies]
    ids = np.full((max(0, len(rows) - skipped), len(known)), -1, dtype=dtype)
    expected = ids.copy()
    hashed = [data.draw(st.booleans()) for _ in values]
    known_values = [None if is_hashed else drawn(table, data) for table, is_hashed in zip(values, hashed, strict=True)]
    rules = [hashed_to(data.draw(st.sampled_from([2, 7, 1 << 31]))) for _ in known]
    order = range(len(known))
    native_ids.IdMaps(tables(known_values), known_values, rules).write_ids(columns, order, ids)
    vocabulary.IdMaps(tables(known_values), known_values, rules).write_ids(columns, order, expected)
    assert ids.tolist() == expected.tolist()


@given(st.lists(st.tuples(VALUES, VALUES), max_size=150), st.integers(0, 9), st.integers(2, 1 << 31))
def test_ids_by_hashing(rows: list[tuple[int | None, int | None]], skipped: int, rows_per_table: int) -> None:
    columns = [column([row[table] for row in rows]).slice(skipped) for table in (0, 1)]
    for dtype in (np.int32, np.int64):
        rules = [hashed_to(rows_per_table)] * 2
        ids = np.full((max(0, len(rows) - skipped), 2), -1, dtype=dtype)
        expected = ids.copy()
        native_ids.IdMaps(tables([None] * 2), [None] * 2, rules).write_ids(columns, (0, 1), ids)
        vocabulary.IdMaps(tables([None] * 2), [None] * 2, rules).write_ids(columns, (0, 1), expected)
        assert ids.tolist() == expected.tolist()


def test_more_rows_than_a_tile_holds() -> None:
    rng = np.random.default_rng(2)
    known = rng.permutation(5000).astype(np.uint32)
    asked = rng.integers(0, 9000, 3000).astype(np.uint32)
    ids = np.empty((3000, 2), dtype=np.int32)
    both = [TableVocabulary(known), TableVocabulary(known[:10])]
    native_ids.IdMaps(tables(both), both, [hashed_to(2)] * 2).write_ids(
        [pa.array(asked), pa.array(asked[::-1].copy())], (0, 1), ids
    )
    expected = [
        vocabulary.Vocabulary(known).ids(pa.array(asked)),
        vocabulary.Vocabulary(known[:10]).ids(pa.array(asked[::-1].copy())),
    ]
    assert np.array_equal(ids, np.stack(expected, axis=1))
