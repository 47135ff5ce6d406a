"""Native vocabularies and ids of wide integers and texts are those of their definition."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from data_prep.formats.columns import Values
from data_prep.formats.layout import IdRule, Table
from data_prep.vocabularies import native_ids, vocabulary, wide_values
from data_prep.vocabularies.wide_values import CountedValues
from tests.drawing import share_of

pytestmark = pytest.mark.skipif(not is_built("wide_ids"), reason="native code was not built")

LIMITS = st.sampled_from([-(1 << 63), (1 << 63) - 1, 0, 1 << 32, 1 << 33])
INTEGERS = st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1) | LIMITS
TEXTS = (
    st.sampled_from(["", "a", "b", "é", "12345678", "123456789", "a" * 16, "a" * 17])
    | st.text(st.characters(codec="utf-8"), max_size=4)
    | st.text("ab", max_size=20)
)
KINDS = {
    Values.INTEGER: (pa.int64(), INTEGERS),
    Values.TEXT: (pa.string(), TEXTS),
    Values.HEX: (pa.uint32(), st.integers(0, 9) | st.integers(0, (1 << 32) - 1)),
}


def assert_equal(found: CountedValues, expected: CountedValues) -> None:
    assert found.values.dtype == found.rare.values.dtype == expected.values.dtype
    assert found.values.tolist() == expected.values.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.rare.values.tolist() == expected.rare.values.tolist()
    assert found.rare.counts.tolist() == expected.rare.counts.tolist()
    assert found.look_ups == expected.look_ups


def natively_counted(column: pa.ChunkedArray, values: Values, min_count: int) -> CountedValues:
    counter = native_ids.new_counter(values)
    look_ups = native_ids.count_values(counter, column.chunks)
    assert counter.values == len(column.drop_null().unique())
    return native_ids.counted(counter, min_count, look_ups)


@pytest.mark.parametrize("values", [Values.INTEGER, Values.TEXT])
@settings(deadline=None)
@given(data=st.data(), skipped=st.integers(0, 9), min_count=st.integers(1, 3))
def test_counted_values(values: Values, data: st.DataObject, skipped: int, min_count: int) -> None:
    kind, value = KINDS[values]
    chunks = data.draw(st.lists(st.lists(st.none() | value, max_size=150), max_size=3))
    column = pa.chunked_array([pa.array(chunk, kind).slice(skipped) for chunk in chunks], kind)
    assert_equal(natively_counted(column, values, min_count), wide_values.counted_values(column, min_count))


@pytest.mark.parametrize("values", [Values.INTEGER, Values.TEXT])
def test_a_counting_table_that_grows_several_times(values: Values) -> None:
    rng = np.random.default_rng(1)
    numbers = pa.array(rng.integers(-(1 << 62), 1 << 62, 20_000))
    column = pa.chunked_array([numbers, numbers[:1000], numbers[:10]]).cast(KINDS[values][0])
    assert_equal(natively_counted(column, values, 2), wide_values.counted_values(column, 2))


@settings(max_examples=share_of(40), deadline=None)
@given(st.data(), st.integers(0, 9), st.sampled_from([np.int32, np.int64]))
def test_ids_by_vocabulary_and_by_hashing(data: st.DataObject, skipped: int, dtype: type) -> None:
    """Of any kinds beside each other; vocabularies perhaps with unseen buckets and free ids."""
    kinds = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    vocabularies: list[TableVocabulary | None] = []
    columns = []
    rows = data.draw(st.integers(0, 150))
    for values in kinds:
        kind, value = KINDS[values]
        known = data.draw(st.lists(value, unique=True, max_size=40))
        buckets, gaps = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2))
        free = np.sort(data.draw(st.permutations(range(len(known) + gaps)))[:gaps]).astype(np.int64) + 1 + buckets
        made = TableVocabulary(pa.array(known, kind).to_numpy(zero_copy_only=False), buckets, free)
        vocabularies.append(data.draw(st.sampled_from([made, made, None])))
        asked = st.lists(st.none() | value | st.sampled_from(known or [None]), min_size=rows, max_size=rows)
        columns.append(pa.array(data.draw(asked), kind).slice(skipped))
    rules = [IdRule(1, None, data.draw(st.sampled_from([2, 7, 1 << 31]))) for _ in kinds]
    tables = [Table(f"T{number}", values, (f"T{number}",)) for number, values in enumerate(kinds)]
    ids = np.full((len(columns[0]), len(kinds)), -1, dtype=dtype)
    expected = ids.copy()
    order = data.draw(st.permutations(range(len(kinds))))
    ordered = [columns[number] for number in order]
    native_ids.IdMaps(tables, vocabularies, rules).write_ids(ordered, order, ids)
    vocabulary.IdMaps(tables, vocabularies, rules).write_ids(ordered, order, expected)
    assert ids.tolist() == expected.tolist()


def test_values_that_collide_are_told_apart() -> None:
    """Multiples of a large power of two have the same lower bits; the upper half is part of the hash."""
    known = (np.arange(3000, dtype=np.int64) << 32) - (1 << 40)
    ids = np.empty((3000, 1), dtype=np.int64)
    made = TableVocabulary(known)
    tables, rules = [Table("T", Values.INTEGER, ("T",))], [IdRule(1, None, 2)]
    native_ids.IdMaps(tables, [made], rules).write_ids([pa.array(known)], [0], ids)
    assert ids[:, 0].tolist() == list(range(1, 3001))
    native_ids.IdMaps(tables, [made], rules).write_ids([pa.array(known + 1)], [0], ids)
    assert not ids.any()


def test_a_vocabulary_of_texts_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of Arrow's texts have 32 bits, and all texts of a table may have more than 2 GiB."""
    monkeypatch.setattr(native_ids, "_TEXTS_AT_ONCE", 3)
    given_texts: list[int] = []
    add = native_ids.TextTable.add
    monkeypatch.setattr(
        native_ids.TextTable, "add", lambda self, texts, count: given_texts.append(count) or add(self, texts, count)
    )
    known = np.array([f"text {number}" for number in range(10)], object)
    maps = native_ids.IdMaps([Table("T", Values.TEXT, ("T",))], [TableVocabulary(known)], [IdRule(1, None, 2)])
    assert given_texts == [3, 3, 3, 1]
    ids = np.empty((11, 1), dtype=np.int64)
    maps.write_ids([pa.array([*known, "text 10"])], [0], ids)
    assert ids[:, 0].tolist() == [*range(1, 11), 0]
