"""Columns of a Parquet file give what the same rows give as text, whatever their types."""

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, to_document

SCHEMA = """
[file]
missing = {missing}
[columns]
click = {{ kind = "label" }}
item = {{ kind = "categorical" }}
{columns}
"""


def silent(_: str) -> None:
    """Progress that nobody reads."""


def prepared(folder: Path, source: Path, columns: str, missing: str = "[]", **others: Any) -> dict[str, Any]:
    """All that the shard and the vocabularies of a file hold."""
    (folder / "schema.toml").write_text(SCHEMA.format(missing=missing, columns=columns))
    schema = to_document(load_schema(str(folder / "schema.toml")))
    output = folder / f"of {source.name}"
    settings = PrepareSettings("schema", schema=schema, min_count=1, test_fraction=0, **others)
    manifest = prepare_clicks([str(source)], output, settings, silent)
    found: dict[str, Any] = {"skipped": manifest.skipped_rows}
    with h5py.File(output / "train-00000.h5") as shard:
        found |= {name: shard[name][:].tolist() for name in shard if isinstance(shard[name], h5py.Dataset)}
    return found | {
        f"values of {table.name}": read_vocabulary(output, manifest, table.name).tolist() for table in manifest.tables
    }


def both(folder: Path, rows: dict[str, Any], columns: str, missing: str = "[]") -> tuple[dict[str, Any], ...]:
    """What rows give as text and as Parquet; a label and a category are put beside them."""
    count = len(next(iter(rows.values())))
    table = pa.table({"click": [row % 2 for row in range(count)], "item": ["x"] * count, **rows})
    pa_csv.write_csv(table, folder / "rows.csv")
    pa_parquet.write_table(table, folder / "rows.parquet")
    return tuple(prepared(folder, folder / name, columns, missing) for name in ("rows.csv", "rows.parquet"))


@pytest.mark.parametrize("values", ["integer", "text"])
@pytest.mark.parametrize("found", [pa.int64(), pa.uint8(), pa.float64(), pa.decimal128(5, 0), pa.string()])
def test_groups_are_those_of_the_same_rows_as_text(tmp_path: Path, values: str, found: pa.DataType) -> None:
    groups = pa.array([7, 0, 7, 200]).cast(pa.decimal128(20, 0)).cast(found)
    text, parquet = both(tmp_path, {"user": groups}, f'user = {{ kind = "group", values = "{values}" }}')
    assert text == parquet
    assert values == "text" or parquet["group"] == [7, 0, 7, 200]


def test_texts_of_integers_may_be_beyond_64_bits_with_a_sign(tmp_path: Path) -> None:
    rows = {"user": pa.array([2**64 - 1, 0], pa.uint64()), "ad": pa.array([2**63, 1], pa.uint64())}
    text, parquet = both(tmp_path, rows, 'user = { kind = "group", values = "text" }\nad = { kind = "categorical" }')
    assert text == parquet


BAD_WORDS = '["-1", "NA", "1e999"]'
BAD = {
    "no group": (
        {"user": pa.array([7, None])},
        'user = { kind = "group" }',
        "user is '' instead of a group",
    ),
    "no time": (
        {"when": pa.array([7, None], pa.timestamp("ns"))},
        'when = { kind = "timestamp" }',
        "when is '' instead of a time",
    ),
    "no day": (
        {"when": pa.array([7, None], pa.date32())},
        'when = { kind = "timestamp", format = "%Y-%m-%d" }',
        "when is '' instead of a time",
    ),
    "a group that a word calls missing": (
        {"user": pa.array([7, -1])},
        'user = { kind = "group" }',
        "user is '-1' instead of a group",
    ),
    "a time that a word calls missing": (
        {"when": pa.array([7, -1])},
        'when = { kind = "timestamp" }',
        "when is '-1' instead of a time",
    ),
    "a label that is NaN": (
        {"bought": pa.array([1, float("nan")])},
        'bought = { kind = "label", positive = ["1"] }',
        "bought is 'nan', so that its label is missing",
    ),
    "a weight that a word calls missing, in text": (
        {"weight": pa.array(["1", "NA"])},
        'weight = { kind = "sample_weight" }',
        "weight is 'NA' instead of a number, 0 or more",
    ),
    "infinity, which no word of a large number is": (
        {"price": pa.array([1.0, float("inf")])},
        'price = { kind = "numeric" }',
        "price is 'inf', which is no number",
    ),
    "a group that is no integer": (
        {"user": pa.array([7, 7.5])},
        'user = { kind = "group" }',
        "user is '7.5', which is no integer",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_is_named_and_may_be_left_out(tmp_path: Path, what: str) -> None:
    """The second row is bad."""
    rows, columns, problem = BAD[what]
    pa_parquet.write_table(pa.table({"click": [1, 0], "item": ["x", "x"]} | rows), tmp_path / "rows")
    with pytest.raises(DataError, match=f"/rows:2: {problem}; correct the row"):
        prepared(tmp_path, tmp_path / "rows", columns, BAD_WORDS)
    found = prepared(tmp_path, tmp_path / "rows", columns, BAD_WORDS, skip_bad_rows=1)
    assert found["skipped"] == (f"{tmp_path}/rows:2: {problem}",)
    assert len(found["label"]) == 1


@pytest.mark.parametrize("zone", [None, "America/New_York"])
@pytest.mark.parametrize(("unit", "a_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_timestamps_of_all_units_are_seconds_rounded_down(
    tmp_path: Path, unit: str, a_second: int, zone: str | None
) -> None:
    seconds = [-3, 0, 1_700_000_000]
    ticks = [second * a_second + (a_second - 1) for second in seconds]
    times = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit, zone))
    table = pa.table({"click": [0, 1, 0], "item": ["x"] * 3, "when": times})
    pa_parquet.write_table(table, tmp_path / "rows")
    assert prepared(tmp_path, tmp_path / "rows", 'when = { kind = "timestamp" }')["timestamp"] == seconds


@pytest.mark.parametrize("found", [pa.date32(), pa.date64()])
def test_dates_are_those_of_the_same_rows_as_text(tmp_path: Path, found: pa.DataType) -> None:
    days = pa.array([-400, 0, 20_000], pa.int32()).cast(pa.date32()).cast(found)
    text, parquet = both(tmp_path, {"when": days}, 'when = { kind = "timestamp", format = "%Y-%m-%d" }')
    assert text == parquet
    assert parquet["timestamp"] == [-400 * 86_400, 0, 20_000 * 86_400]


@pytest.mark.parametrize("found", [pa.time32("ms"), pa.time64("ns"), pa.duration("ms")])
def test_times_without_a_day_are_refused_before_rows_are_read(tmp_path: Path, found: pa.DataType) -> None:
    table = pa.table({"click": [0, 1], "item": ["x", "y"], "when": pa.array([1, 2], found)})
    pa_parquet.write_table(table, tmp_path / "rows")
    problem = f"/rows: column when holds {found} instead of timestamps, dates, integers or text; correct columns.when"
    with pytest.raises(DataError, match=re.escape(problem)):
        prepared(tmp_path, tmp_path / "rows", 'when = { kind = "timestamp" }')


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_milliseconds_are_seconds_rounded_down_however_they_are_written(tmp_path: Path, backend: str) -> None:
    ticks = [-1500, -1000, -1, 0, 999, 1000, 1_700_000_000_123]
    rows = {"click": [0, 1, 0, 1, 0, 1, 1], "item": ["x"] * 7}
    pa_csv.write_csv(pa.table(rows | {"when": ticks}), tmp_path / "csv")
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.timestamp("ms"))
    for number, kind in enumerate(kinds):
        pa_parquet.write_table(pa.table(rows | {"when": pa.array(ticks).cast(kind)}), tmp_path / f"parquet {number}")
    columns = 'when = { kind = "timestamp", format = "milliseconds" }'
    names = ["csv", *(f"parquet {number}" for number in range(len(kinds)))]
    found = [prepared(tmp_path, tmp_path / name, columns, backend=backend)["timestamp"] for name in names]
    assert found == [[-2, -1, -1, 0, 0, 1, 1_700_000_000]] * 5


WORDS = '["-1", "-999", "NA", "0.1", "9007199254740993", "1e99", "1e999", "-inf", "18446744073709551616"]'
MAYBE_MISSING = {
    "short": pa.array([-1, 3, None, 100], pa.int8()),
    "long": pa.array([2**53, 2**53 + 1, -1, None], pa.int64()),
    "unsigned": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
    "ids": pa.array([-1, 3, float("nan"), None], pa.float32()),
    "texts": ["NA", "", None, "-1"],
    "words": pa.array(["NA", "a", "a", None]).dictionary_encode(),
    "half": pa.array([0.5, -1, None, float("nan")], pa.float16()),
    "single": pa.array([0.1, -1, -0.5, None], pa.float32()),
    "double": pa.array([float("-inf"), -1, -999, float("nan")]),
    "counts": pa.array([-1, 7, None, 8], pa.int64()),
    "exact": pa.array([-100, 250, None, 10], pa.int64()).cast(pa.decimal128(20, 0)),
}
COLUMNS = """
short = { kind = "categorical", values = "integer" }
long = { kind = "categorical", values = "integer" }
unsigned = { kind = "categorical" }
ids = { kind = "categorical", values = "integer" }
texts = { kind = "categorical" }
words = { kind = "categorical" }
half = { kind = "numeric" }
single = { kind = "numeric", missing = 5 }
double = { kind = "numeric", missing = 5 }
counts = { kind = "numeric", integer = true, missing = 5 }
exact = { kind = "numeric", missing = 5 }
[derived]
none = { kind = "numeric", from = "half", is_missing = true }
"""


def as_text(column: Any) -> pa.Array:
    """The fields of a column as a writer of text has them, NaN being none."""
    column = pa.array(column) if isinstance(column, list) else column
    fields = column.cast(pa.string())
    return pc.if_else(pc.equal(fields, "nan"), "", fields)


def test_missing_values_are_those_of_the_same_rows_as_text(tmp_path: Path) -> None:
    rows = {"click": [0, 1, 0, 1], "item": ["x"] * 4, **MAYBE_MISSING}
    pa_parquet.write_table(pa.table(rows), tmp_path / "typed")
    texts = pa.table({name: as_text(column) for name, column in rows.items()})
    pa_parquet.write_table(texts, tmp_path / "texts")
    pa_csv.write_csv(texts, tmp_path / "csv")
    text, typed, texts = (prepared(tmp_path, tmp_path / name, COLUMNS, WORDS) for name in ("csv", "typed", "texts"))
    assert text == typed == texts
    assert [row[:5] for row in typed["dense"]] == [
        [0.5, 5, 5, 5, -100],
        [0, 5, 5, 7, 250],
        [0, -0.5, 5, 5, 5],
        [0, 5, 5, 8, 10],
    ]
    assert [row[5] for row in typed["dense"]] == [0, 1, 1, 1]
    found = {name: typed[f"values of {name}"] for name in ("short", "long", "unsigned", "ids", "texts", "words")}
    assert found == {
        "short": [3, 100],
        "long": [2**53],
        "unsigned": ["0", "1", str(2**64 - 1)],
        "ids": [3],
        "texts": [],
        "words": ["a"],
    }


def test_words_mean_numbers_however_they_are_written_but_no_values_of_lists(tmp_path: Path) -> None:
    """Those that a type cannot hold are none of its values."""
    rows = {"x": pa.array([2, 3], pa.decimal128(3, 2)), "seen": [[-1], [-1, 2]], "big": pa.array([1, 2], pa.uint8())}
    columns = 'x = { kind = "numeric" }\nseen = { kind = "sequence", values = "integer" }\nbig = { kind = "numeric" }'
    pa_parquet.write_table(pa.table({"click": [0, 1], "item": ["x"] * 2} | rows), tmp_path / "rows")
    found = prepared(tmp_path, tmp_path / "rows", columns, '["-1", "1e3", "300", "0.001", "inf", "2.50", "+3.0"]')
    assert found["dense"] == [[2, 1], [0, 2]]
    assert found["values of seen"] == [-1, 2]


def not_utf8(kind: str) -> pa.Array:
    """Three texts, the second of which is no UTF-8, in a column of a kind; Parquet's writers do not look at texts."""
    ends = pa.py_buffer(np.array([0, 1, 4, 5], np.int32))
    texts = pa.StringArray.from_buffers(3, ends, pa.py_buffer(b"ab\xffbc"))
    match kind:
        case "dictionary":
            return texts.dictionary_encode()
        case "list":
            return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts)
        case "weighted list":
            pairs = pa.StructArray.from_arrays([texts, pa.array([0.5] * 3)], names=["value", "weight"])
            return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pairs)
    return texts.cast(kind)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("string", 'x = { kind = "categorical" }'),
        ("large_string", 'x = { kind = "categorical" }'),
        ("dictionary", 'x = { kind = "categorical" }'),
        ("string", 'x = { kind = "group", values = "text" }'),
        ("list", 'x = { kind = "multi_hot" }'),
        ("weighted list", 'x = { kind = "multi_hot", weights = ":" }'),
    ],
)
def test_a_text_that_is_not_utf8_spoils_its_row_alone(tmp_path: Path, kind: str, column: str) -> None:
    rows = {"click": [0, 1, 1], "item": ["x"] * 3, "x": not_utf8(kind)}
    pa_parquet.write_table(pa.table(rows), tmp_path / "rows")
    found = prepared(tmp_path, tmp_path / "rows", column, skip_bad_rows=1)
    assert found["skipped"] == (f"{tmp_path / 'rows'}:2: x holds 'b\\xffb', which is no UTF-8 text",)
    assert found["label"] == [0, 1]


LABELS_IN_WORDS = {
    "booleans": (pa.array([True, False, True]), '["True"]', [1, 0, 1]),
    "booleans that are false": (pa.array([True, False, True]), '["FALSE", "no"]', [0, 1, 0]),
    "booleans by a number": (pa.array([True, False, True]), '["1"]', [1, 0, 1]),
    "integers": (pa.array([1, 2, 1], pa.int8()), '["1.0"]', [1, 0, 1]),
    "double numbers": (pa.array([1.0, 2.5, 0.1]), '["1", "0.10"]', [1, 0, 1]),
    "single numbers": (pa.array([1.0, 2.5, 0.1], pa.float32()), '["1", "0.1"]', [1, 0, 1]),
    "half numbers": (pa.array([1.0, 2.5, 0.1], pa.float16()), '["1", "0.1"]', [1, 0, 1]),
    "decimal numbers": (pa.array([100, 250, 100], pa.int64()).cast(pa.decimal128(20, 0)), '["1e2"]', [1, 0, 1]),
    "large integers": (pa.array([2**53 + 1, 2**53, 2**53 + 1]), f'["{2**53 + 1}"]', [1, 0, 1]),
    "a dictionary of numbers": (pa.array([1.0, 2.5, 1.0]).dictionary_encode(), '["1"]', [1, 0, 1]),
    "texts": (["yes", "1.0", "yes"], '["yes", "1"]', [1, 0, 1]),
}


@pytest.mark.parametrize("what", LABELS_IN_WORDS)
def test_words_of_a_label_equal_what_they_mean(tmp_path: Path, what: str) -> None:
    labels, words, expected = LABELS_IN_WORDS[what]
    pa_parquet.write_table(pa.table({"click": [0, 1, 1], "item": ["x"] * 3, "bought": labels}), tmp_path / "rows")
    found = prepared(tmp_path, tmp_path / "rows", f'bought = {{ kind = "label", positive = {words} }}')
    assert [label for _, label in found["label"]] == expected


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (pa.array([True, False, True]), "yes"),
        (pa.array([True, False, True]), "2"),
        (pa.array([1.0, 0.0, 1.0]), "true"),
        (pa.array([1, 0, 1], pa.int8()), "200"),
        (pa.array([1, 0, 1]), "0.5"),
    ],
)
def test_words_that_no_label_equals_are_refused(tmp_path: Path, labels: pa.Array, word: str) -> None:
    pa_parquet.write_table(pa.table({"click": [0, 1, 1], "item": ["x"] * 3, "bought": labels}), tmp_path / "rows")
    problem = (
        f"/rows: column bought holds {labels.type}, no value of which can be one of positive = ['{word}']: give "
        "numbers, of booleans true or false, or at_least, or leave positive out where labels are 0 and 1; correct "
    )
    with pytest.raises(DataError, match=re.escape(problem)):
        prepared(tmp_path, tmp_path / "rows", f'bought = {{ kind = "label", positive = ["{word}"] }}')


@pytest.mark.parametrize("labels", [pa.array([True, None]), pa.array([1.0, float("nan")]), pa.array([1, None])])
def test_a_label_in_words_that_is_missing_is_a_bad_row(tmp_path: Path, labels: pa.Array) -> None:
    pa_parquet.write_table(pa.table({"click": [0, 1], "item": ["x"] * 2, "bought": labels}), tmp_path / "rows")
    with pytest.raises(DataError, match=r"/rows:2: bought is '(nan)?', so that its label is missing"):
        prepared(tmp_path, tmp_path / "rows", 'bought = { kind = "label", positive = ["1"] }')


@pytest.mark.parametrize(("value", "said"), [(0.0, 0), (7.0, 1)])
def test_a_label_that_is_always_the_same_is_told_at_the_end(tmp_path: Path, value: float, said: int) -> None:
    """Of the training rows: those for tests hold both labels."""
    rows = {"click": [0, 1] * 5, "item": ["x"] * 10, "bought": [value] * 8 + [7.0, 0.0]}
    pa_parquet.write_table(pa.table(rows), tmp_path / "rows")
    columns = 'bought = { kind = "label", positive = ["7"] }'
    (tmp_path / "schema.toml").write_text(SCHEMA.format(missing="[]", columns=columns))
    schema, lines = to_document(load_schema(str(tmp_path / "schema.toml"))), []
    settings = PrepareSettings("schema", schema=schema, test_fraction=0.2, rows_per_shard=3)
    prepare_clicks([str(tmp_path / "rows")], tmp_path / "out", settings, lines.append)
    notes = [line for line in lines if line.startswith("note: label")]
    assert notes == [f"note: label bought is {said} in all 8 training rows; check the column and its rule"]
