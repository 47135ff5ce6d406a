"""A proposed schema says what the columns are, and prepares the file that it was made of."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.errors import DataError
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.columns import CategoricalColumn, MultiHotColumn, SequenceColumn
from data_prep.schema.document import Schema, load_schema, to_document
from data_prep.schema.proposal.propose import propose_schema
from tests.real_clicks import FIRST_ROWS


def proposed(source: Path) -> Schema:
    """The schema that is proposed for a file, which it prepares whole."""
    toml = source.parent / "proposed.toml"
    toml.write_text(propose_schema(str(source)))
    schema = load_schema(str(toml))
    output = source.parent / f"of {source.name}"
    prepare_clicks([str(source)], output, PrepareSettings("schema", schema=to_document(schema)), lambda _: None)
    return schema


def kinds(schema: Schema) -> dict[str, str]:
    return {column["name"]: column["kind"] for column in to_document(schema)["columns"]}


@pytest.mark.parametrize("ending", ["csv", pytest.param("csv.gz", marks=pytest.mark.slow), "parquet"])
def test_avazus_columns_are_recognised(tmp_path: Path, ending: str) -> None:
    source = tmp_path / f"clicks.{ending}"
    generate_clicks(3000, source, schema=load_schema("avazu"))
    schema = proposed(source)
    found, wanted = kinds(schema), kinds(load_schema("avazu"))
    assert found["click"] == "label"
    assert found["hour"] == "timestamp"
    assert all(found[name] == "categorical" for name in wanted if name.startswith(("site", "app")))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_movielens_columns_are_recognised(tmp_path: Path, ending: str) -> None:
    source = tmp_path / f"ratings.{ending}"
    generate_clicks(3000, source, schema=load_schema("movielens"))
    schema = proposed(source)
    assert kinds(schema) == kinds(load_schema("movielens"))
    (rating,) = (column for column in schema.columns if column.name == "rating")
    assert rating == next(column for column in load_schema("movielens").columns if column.name == "rating")


@pytest.mark.skipif(not FIRST_ROWS.is_file(), reason="Criteo's real rows are not here")
def test_criteos_real_rows_are_recognised(tmp_path: Path) -> None:
    source = tmp_path / "train.txt.xz"
    source.write_bytes(FIRST_ROWS.read_bytes())
    schema = proposed(source)
    assert (schema.file.separator, schema.file.header) == ("tab", False)
    found = list(kinds(schema).values())
    assert found[0] == "label"
    assert found[14:] == ["categorical"] * 26


def test_words_for_missing_values_quotes_and_labels_in_words(tmp_path: Path) -> None:
    rows = [
        f'{"yes" if row % 3 else "no"};{"NA" if row % 5 == 0 else row / 7};"a;{row % 4}";{row % 9}'
        for row in range(200)
    ]
    (tmp_path / "clicks").write_text("clicked;price;what;size\n" + "\n".join(rows))
    schema = proposed(tmp_path / "clicks")
    assert schema.file.missing == ("NA",)
    assert kinds(schema) == {"clicked": "label", "price": "numeric", "what": "categorical", "size": "categorical"}
    assert to_document(schema)["columns"][0]["positive"] == ["yes"]


def test_every_line_says_why(tmp_path: Path) -> None:
    generate_clicks(500, tmp_path / "clicks.csv", schema=load_schema("movielens"))
    text = propose_schema(str(tmp_path / "clicks.csv"))
    columns = text.partition("[columns]\n")[2].splitlines()
    assert len(columns) == 7
    assert all(" # " in line for line in columns)


HOSTILE = {
    "no file": (None, "no such input file"),
    "empty": (b"", "is empty"),
    "one word": (b"hello", "no separator"),
    "prose": (b"This is a text.\nIt has two lines, and no table\nat all\n", "no separator|so none can be the label"),
    "header alone": (b"click,item\n", "has a header and no row"),
    "empty lines": (b"\n\n\n", "holds no row"),
    "zero bytes": (b"click,item\n0,\0\n", "holds zero bytes"),
    "no label": (b"a,b\n1,2\n3,4\n5,6\n", "so none can be the label"),
    "no table": (b"click,rest\n0,\n1,\n0,\n", "no column for an embedding table"),
    "a zip": (b"PK\x03\x04....", "is a zip archive"),
    "UTF-16": ("click,item\n0,a\n".encode("utf-16"), "is text in UTF-16"),
    "a cut gzip": (gzip.compress(b"click,item\n0,1\n" * 999)[:30], "cannot be read"),
    "no Parquet": (b"PAR1 and nothing else", "cannot be read as Parquet"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
    "numbers alone": (b"1\n2\n3\n", "no separator"),
    "lines of all lengths": (b"1,2,3\n1\n1,2\n1,2,3,4\n1,2,3,4,5\n", "no separator"),
    "one long line": (b"x" * 10_000, "no separator"),
    "labels that are missing": (b"click,item\n0,a\n,b\n1,c\n", "so none can be the label"),
    "a folder": ("folder", "is a folder"),
    "a link to nothing": ("link", "is a link to"),
    "a column named twice": (b"click,item,item\n0,a,b\n1,b,a\n", "names the column 'item' twice"),
    "a line without end": (b"click,item\n0," + b"a" * (5 << 20) + b"\n1,b\n", "hardly an end of line"),
    "a circle of links": ("circle", "links lead in a circle"),
    "a pattern of two files": ("pattern", "name one file"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_table_is_refused_by_name_in_one_line(tmp_path: Path, what: str) -> None:
    content, problem = HOSTILE[what]
    path = tmp_path / "clicks"
    match content:
        case bytes():
            path.write_bytes(content)
        case "folder":
            path.mkdir()
        case "circle":
            path.symlink_to(tmp_path / "back")
            (tmp_path / "back").symlink_to(path)
        case "link":
            path.symlink_to(tmp_path / "nothing")
        case "pattern":
            for name in ("clicks_1", "clicks_2"):
                (tmp_path / name).write_text("click,item\n0,a\n1,b\n")
            path = tmp_path / "clicks_*"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match=problem) as error:
        propose_schema(str(path))
    assert str(error.value).startswith(str(path)) or "clicks" in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


def test_columns_that_parquet_alone_can_hold_are_passed_over(tmp_path: Path) -> None:
    table = pa.table({"click": [0, 1, 0], "item": ["a", "b", "a"], "point": [{"x": 1}] * 3, "a/b": ["u", "v", "w"]})
    table = table.append_column("deep", pa.array([[["a"]], [["b"]], []]))
    pa_parquet.write_table(table, tmp_path / "clicks")
    schema = proposed(tmp_path / "clicks")
    assert kinds(schema) == {
        "click": "label",
        "item": "categorical",
        "point": "unused",
        "a/b": "unused",
        "deep": "unused",
    }


def test_names_with_blanks_are_categories_and_weights_in_texts_are_seen(tmp_path: Path) -> None:
    cities = ["New York", "New Orleans", "Los Angeles", "San Diego", "San Jose", "Boston", "El Paso", "St Louis"]
    rows = [f"{row % 2},{cities[row % 8]},a:0.{row % 7}|b:1,{row % 5} {row % 7}" for row in range(300)]
    (tmp_path / "clicks.csv").write_text("click,city,tags,seen\n" + "\n".join(rows))
    columns = {column.name: column for column in proposed(tmp_path / "clicks.csv").columns}
    assert type(columns["city"]) is CategoricalColumn
    assert columns["tags"] == MultiHotColumn(name="tags", separator="|", weights=":")
    assert columns["seen"] == SequenceColumn(name="seen", values="integer", separator=" ")


def test_lists_with_weights_in_parquet_are_proposed_with_them(tmp_path: Path) -> None:
    tags = [[{"value": "a", "weight": 0.5}], [], [{"value": "b", "weight": 2.0}, {"value": "a", "weight": 1.0}]]
    table = pa.table({"click": [0, 1, 0], "item": ["u", "v", "u"], "tags": tags, "plain": [["a"], [], ["b", "a"]]})
    pa_parquet.write_table(table, tmp_path / "clicks")
    columns = {column.name: column for column in proposed(tmp_path / "clicks").columns}
    assert (columns["tags"].weights, columns["plain"].weights) == (":", None)


def test_lists_of_previous_values_are_in_order(tmp_path: Path) -> None:
    lists = [[1, 2], [], [3]]
    table = pa.table({"click": [0, 1, 0], "item": ["u", "v", "u"], "prev_items": lists, "previews": lists})
    pa_parquet.write_table(table, tmp_path / "clicks")
    found = kinds(proposed(tmp_path / "clicks"))
    assert (found["prev_items"], found["previews"]) == ("sequence", "multi_hot")


def test_unsigned_hashes_are_categories(tmp_path: Path) -> None:
    """Numbers of 64 bits without a sign are no decimal numbers to be standardised."""
    hashes = pa.array([2**64 - 1, 2**63, 7] * 100, pa.uint64())
    pa_parquet.write_table(pa.table({"click": [0, 1, 0] * 100, "item": hashes}), tmp_path / "clicks")
    assert proposed(tmp_path / "clicks").columns[1] == CategoricalColumn(name="item")
    (tmp_path / "clicks.csv").write_text("click,item\n" + "0,18446744073709551615\n1,7\n" * 100)
    assert proposed(tmp_path / "clicks.csv").columns[1] == CategoricalColumn(name="item")


def test_the_command_that_is_named_finds_the_file(tmp_path: Path) -> None:
    """From where the schema was asked for, in a folder whose name holds a blank; the parts stand apart by one line."""
    (tmp_path / "my logs").mkdir()
    source = tmp_path / "my logs" / "clicks.parquet"
    pa_parquet.write_table(pa.table({"click": [0, 1, 0], "item": ["u", "v", "u"]}), source)
    text = propose_schema(str(source))
    assert f"bagpipe prepare --schema THIS.toml --input '{source}' --output shards\n\n[columns]\n" in text


def test_times_of_every_type_in_parquet_are_looked_at(tmp_path: Path) -> None:
    """Python's own times would hold neither nanoseconds nor all days."""
    columns = {
        "click": [0, 1, 0],
        "item": ["u", "v", "u"],
        "when": pa.array([1_700_000_000_000_000_001, 1, -1], pa.timestamp("ns", "America/New_York")),
        "left": pa.array([1, None, 2], pa.timestamp("ns")),
        "clock": pa.array([1, 2, 3], pa.time64("ns")),
        "spent": pa.array([1, 2, 3], pa.duration("ns")),
        "visits": pa.array([[1], [], [2]], pa.list_(pa.timestamp("ns"))),
    }
    pa_parquet.write_table(pa.table(columns), tmp_path / "clicks")
    found = kinds(proposed(tmp_path / "clicks"))
    assert (found["when"], {found[name] for name in ("left", "clock", "spent", "visits")}) == ("timestamp", {"unused"})
    days = pa.array([20_000, 3_000_000, -1_000_000], pa.date32())
    pa_parquet.write_table(pa.table({"click": [0, 1, 0], "item": ["u", "v", "u"], "day": days}), tmp_path / "days")
    assert "day = " in propose_schema(str(tmp_path / "days"))


def test_fields_of_any_length_are_read(tmp_path: Path) -> None:
    """Of a name, a text and one with quotes: the csv module gives up at 131,072 characters."""
    name, long = "n" * 140_000, "x" * 140_000
    rows = [f'{row % 2},"{long if row == 7 else "a"}",{row % 5}' for row in range(20)]
    (tmp_path / "clicks.csv").write_text(f"click,item,{name}\n" + "\n".join(rows))
    assert kinds(proposed(tmp_path / "clicks.csv")) == {"click": "label", "item": "categorical", name: "categorical"}


def test_a_quote_that_nothing_closes_spoils_its_line_alone(tmp_path: Path) -> None:
    rows = [f'{row % 2},"b' if row == 3 else f"{row % 2},a" for row in range(200)]
    (tmp_path / "clicks.csv").write_text("click,item\n" + "\n".join(rows))
    assert "from the first 200 rows" in propose_schema(str(tmp_path / "clicks.csv"))


def test_what_prepare_would_refuse_in_parquet_is_unused(tmp_path: Path) -> None:
    rows = range(300)
    table = pa.table({
        "click": [float(row % 2) for row in rows],
        "item": [f"v{row % 7}" for row in rows],
        "at": pa.array([1_614_834_367_000_001 + row for row in rows], pa.timestamp("us")),
        "there": pa.array([1_614_834_367_000 + row for row in rows], pa.timestamp("ms", tz="America/New_York")),
        "gone": pa.array([row if row % 3 else None for row in rows], pa.date32()),
        "clock": pa.array(list(rows), pa.time32("ms")),
        "shares": [[0.5, float(row)] for row in rows],
        "whole": [[float(row % 5), 1.0] for row in rows],
        "ratio": [float("inf") if row == 299 else row / 7 for row in rows],
    })  # fmt: skip
    pa_parquet.write_table(table, tmp_path / "clicks")
    found = {column["name"]: column for column in to_document(proposed(tmp_path / "clicks"))["columns"]}
    used = {name: column["kind"] for name, column in found.items() if column["kind"] != "unused"}
    assert used == {"click": "label", "item": "categorical", "at": "timestamp", "whole": "multi_hot"}
    assert found["at"] == {"name": "at", "kind": "timestamp"}
    why = {
        line.split(" = ")[0]: line.partition("  # ")[2] for line in propose_schema(str(tmp_path / "clicks")).split("\n")
    }
    assert why["there"] == "another time; a schema has one, which is at here"
    assert why["gone"] == "a time, which may not be missing: 33% are"
    assert why["clock"].startswith("no kind of column fits: holds time32[ms] instead of")
    assert why["shares"].startswith("no kind of column fits: row 1: shares is '[0.5, 0.0]'")
    assert why["ratio"].startswith("no kind of column fits: row 300: ratio is 'inf'")


@pytest.mark.parametrize("lists", [False, True], ids=["texts", "lists"])
def test_a_column_with_a_text_that_is_not_utf8_is_unused(tmp_path: Path, lists: bool) -> None:
    texts = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 4, 5], np.int32)), pa.py_buffer(b"ab\xffbc"))
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts) if lists else texts
    table = pa.table({"click": [0, 1, 0], "item": ["a", "b", "a"], "query": column})
    pa_parquet.write_table(table, tmp_path / "clicks")
    assert kinds(proposed(tmp_path / "clicks"))["query"] == "unused"
    assert "# no kind of column fits: row 2: query holds 'b\\xffb', which is no" in propose_schema(
        str(tmp_path / "clicks")
    )


def test_of_two_times_the_first_is_kept(tmp_path: Path) -> None:
    rows = [f"{row % 2},v{row % 3},2021-03-{1 + row % 28:02d},{1_700_000_000 + row}" for row in range(100)]
    (tmp_path / "clicks.csv").write_text("click,item,created_at,updated_at\n" + "\n".join(rows))
    schema = proposed(tmp_path / "clicks.csv")
    assert kinds(schema) == {"click": "label", "item": "categorical", "created_at": "timestamp", "updated_at": "unused"}
    assert "# another time; a schema has one, which is created_at here" in propose_schema(str(tmp_path / "clicks.csv"))


@pytest.mark.parametrize("between", ["T", " "])
def test_times_with_offsets_from_utc_are_times(tmp_path: Path, between: str) -> None:
    offsets = ("Z", "+0100", "-03:30")
    rows = [f"{row % 2},v{row % 3},2021-03-{1 + row % 28:02d}{between}10:11:12{offsets[row % 3]}" for row in range(100)]
    (tmp_path / "clicks.csv").write_text("click,item,seen\n" + "\n".join(rows))
    assert to_document(proposed(tmp_path / "clicks.csv"))["columns"][2]["format"] == f"%Y-%m-%d{between}%H:%M:%S%z"
