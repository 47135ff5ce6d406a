"""Files are prepared by a schema alone, whatever their kind and order; Criteo's rows as its own format has them."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.shard_file import check_datasets
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, schema_of, to_document
from tests.real_clicks import SAMPLED_ROWS
from tests.unit.data_prep.schema.made_tables import as_csv, read, settings, silent, written

SHOP = """
[file]
missing = ["NA", "\\\\N"]
[columns]
bought = { kind = "label" }
price = { kind = "numeric", clip = [0, 50] }
visits = { kind = "numeric", integer = true, log = true }
user = { kind = "categorical", values = "integer" }
item = { kind = "categorical" }
code = { kind = "categorical", values = "hex", modulo = 16 }
seen = { kind = "sequence", values = "integer", table = "user", longest = 2 }
tags = { kind = "multi_hot", weights = ":" }
weight = { kind = "sample_weight" }
[derived]
price_group = { kind = "categorical", from = "price", bucketise = [10, 20.5] }
user_item = { kind = "categorical", cross = ["user", "item"] }
"""
ROWS: dict[str, list[Any]] = {
    "bought": [0, 1, 1, 0],
    "price": [9.5, None, 100.0, 20.5],
    "visits": [3, -2, None, 0],
    "user": [7, 8, 7, None],
    "item": ["a, b", "ä", None, "a, b"],
    "code": ["1f", "2F", "0", None],
    "seen": [[8, 7, 7], [], [9], [7, 8]],
    "tags": [["x:0.5", "y:2"], ["y:1"], [], ["x:-1"]],
    "weight": [1.0, 0.0, 2.5, 1.0],
}


def test_every_kind_of_column_becomes_what_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_bytes(as_csv(ROWS, missing="NA"))
    manifest = prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "out", settings(SHOP, tmp_path), silent)
    found = read(tmp_path / "out", manifest)
    assert found["label"] == ROWS["bought"]
    log4 = float(np.float32(np.log(4)))
    assert found["dense"] == [[9.5, log4], [0, 0], [50, 0], [20.5, 0]]
    assert found["user"] == [7, 8, 7, None]
    assert found["item"] == ["a, b", "ä", None, "a, b"]
    assert found["code"] == [15, 15, 0, None]
    assert found["price_group"] == [0, None, 2, 2]
    assert found["user_item"] == ["7\x1fa, b", "8\x1fä", None, None]
    assert manifest.weighted_samples
    assert [feature.longest for feature in manifest.ragged_features] == [2, 2]
    assert manifest.settings is not None
    assert manifest.settings["schema"] == to_document(load_schema(str(tmp_path / "schema.toml")))
    assert manifest.settings["dense"] == "as schema says, by the numbers in fitted"


def other_order(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The same columns in another order, with two that the schema does not have."""
    return {"extra": ["?"] * 4, **dict(sorted(rows.items())), "more": [None] * 4}


def as_parquet(rows: dict[str, list[Any]]) -> pa.Table:
    tags = [[dict(zip(("value", "weight"), tag.split(":"), strict=True)) for tag in bag] for bag in rows["tags"]]
    tags = [[tag | {"weight": float(tag["weight"])} for tag in bag] for bag in tags]
    table = pa.table(rows | {"tags": tags})
    return table.set_column(table.schema.get_field_index("item"), "item", table["item"].dictionary_encode())


def test_the_order_of_columns_and_the_kind_of_file_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(as_csv(ROWS))
    (tmp_path / "b.csv").write_bytes(gzip.compress(as_csv(other_order(ROWS), missing="\\N")))
    pa_parquet.write_table(as_parquet(ROWS), tmp_path / "c", compression="zstd")
    pa_parquet.write_table(as_parquet(other_order(ROWS)), tmp_path / "d", row_group_size=3)
    texts = {name: [written(value) if value is not None else None for value in ROWS[name]] for name in ROWS}
    pa_parquet.write_table(pa.table(texts), tmp_path / "e")
    shards = []
    for name in ("a.csv", "b.csv", "c", "d", "e"):
        output = tmp_path / f"of {name}"
        prepare_clicks([str(tmp_path / name)], output, settings(SHOP, tmp_path), silent)
        shards.append([(output / file).read_bytes() for file in ("train-00000.h5", "test-00000.h5", "vocabularies.h5")])
    assert all(found == shards[0] for found in shards)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", ["unused 1", "unused 2"])
def test_further_columns_take_the_name_of_none(tmp_path: Path, backend: str, name: str) -> None:
    (tmp_path / "clicks.csv").write_text(f"click,extra,{name},more\n1,7,5,x\n0,8,6,x\n")
    toml = f'[columns]\nclick = {{ kind = "label" }}\n"{name}" = {{ kind = "categorical", values = "integer" }}\n'
    given = settings(toml, tmp_path, backend=backend, test_fraction=0.0)
    manifest = prepare_clicks([str(tmp_path / "clicks.csv")], tmp_path / "out", given, silent)
    assert read(tmp_path / "out", manifest)[name] == [5, 6]


@pytest.mark.skipif(not SAMPLED_ROWS.is_file(), reason="Criteo's real rows are not here")
@pytest.mark.parametrize("rows", [3000])
def test_criteos_rows_through_a_schema_give_the_shards_of_its_format(tmp_path: Path, rows: int) -> None:
    with lzma.open(SAMPLED_ROWS) as real:
        (tmp_path / "clicks").write_bytes(b"".join(next(real) for _ in range(rows)))
    compare_with_criteo(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLED_ROWS.is_file(), reason="Criteo's real rows are not here")
def test_all_of_criteos_real_rows_through_a_schema(tmp_path: Path) -> None:
    (tmp_path / "clicks").write_bytes(lzma.decompress(SAMPLED_ROWS.read_bytes()))
    compare_with_criteo(tmp_path)


def test_generated_clicks_through_a_schema_give_the_shards_of_criteos_format(tmp_path: Path) -> None:
    generate_clicks(2000, tmp_path / "clicks")
    compare_with_criteo(tmp_path)


def compare_with_criteo(folder: Path) -> None:
    schema = to_document(load_schema("criteo"))
    for name, how in (("format", PrepareSettings()), ("schema", PrepareSettings("schema", schema=schema))):
        prepare_clicks([str(folder / "clicks")], folder / name, how, silent)
    names = {path.name for path in (folder / "format").iterdir()}
    assert names == {path.name for path in (folder / "schema").iterdir()} >= {"train-00000.h5", "vocabularies.h5"}
    for name in names - {"manifest.json"}:
        assert (folder / "format" / name).read_bytes() == (folder / "schema" / name).read_bytes()


BAD = {
    "bought is '2' instead of 0 or 1": {"bought": 2},
    "price is 'cheap', which is no number": {"price": "cheap"},
    "visits is '1.5', which is no integer": {"visits": 1.5},
    "code is 'xyz' instead of 1 to 8 hexadecimal digits": {"code": "xyz"},
    "user is 'me', which is no integer": {"user": "me"},
    "weight is '-1', which is less than 0": {"weight": -1},
    "weight is '' instead of a number, 0 or more": {"weight": None},
}


@pytest.mark.parametrize("problem", BAD)
@pytest.mark.parametrize("parquet", [False, True])
def test_a_bad_row_is_named_by_file_line_column_and_value(tmp_path: Path, problem: str, parquet: bool) -> None:
    rows = {name: [*values, *values] for name, values in ROWS.items()}
    for name, value in BAD[problem].items():
        rows[name][5] = value
    source = tmp_path / "clicks"
    if parquet:
        texts = {name: [None if value is None else written(value) for value in rows[name]] for name in rows}
        pa_parquet.write_table(pa.table(texts), source)
    else:
        source.write_bytes(as_csv(rows))
    line = 6 if parquet else 7
    with pytest.raises(DataError, match=f"/clicks:{line}: {problem}; correct the row"):
        prepare_clicks([str(source)], tmp_path / "out", settings(SHOP, tmp_path), silent)
    skipping = settings(SHOP, tmp_path, skip_bad_rows=1)
    manifest = prepare_clicks([str(source)], tmp_path / "skipped", skipping, silent)
    assert manifest.skipped_rows == (f"{source}:{line}: {problem}",)
    assert manifest.rows("train") + manifest.rows("test") == 7


def test_a_schema_is_the_same_after_a_manifest_recorded_it(tmp_path: Path) -> None:
    recorded = settings(SHOP, tmp_path).schema
    assert recorded is not None
    assert to_document(schema_of(recorded, "manifest")) == recorded


@pytest.mark.parametrize("header", [True, False])
def test_later_rows_are_prepared_from_the_manifest_alone_with_labels_or_without(tmp_path: Path, header: bool) -> None:
    toml = SHOP if header else SHOP.replace("[file]", "[file]\nheader = false")
    text = as_csv(ROWS)
    unlabelled = as_csv({name: values for name, values in ROWS.items() if name != "bought"})
    for name, content in (
        ("clicks", text),
        ("unlabelled", unlabelled),
        ("other", text.replace(b"\n1,", b"\n?,")),
    ):
        (tmp_path / name).write_bytes(content if header else content.partition(b"\n")[2])
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", settings(toml, tmp_path), silent)
    (tmp_path / "schema.toml").unlink()
    shards = []
    for name, labelled in (("clicks", True), ("unlabelled", False), ("other", False), ("clicks", False)):
        output = tmp_path / f"{name} {labelled}"
        later = PrepareSettings(like=tmp_path / "out", labelled=labelled)
        manifest = prepare_clicks([str(tmp_path / name)], output, later, silent)
        assert manifest.rows("test") == 4
        found = read(output, manifest)
        assert found.pop("label") == (ROWS["bought"] if labelled else [0] * 4)
        shards.append(found)
    assert all(found == shards[0] for found in shards)


VISITS = """
[columns]
when = { kind = "timestamp", format = "%Y-%m-%d %H:%M" }
click = { kind = "label" }
user = { kind = "categorical", values = "integer" }
session = { kind = "group", values = "text" }
shown = { kind = "sample_weight" }
item = { kind = "categorical" }
"""
VISIT_ROWS = {
    "when": ["2026-01-05 07:30", "2026-01-05 08:00", "2026-01-06 23:59", "2026-01-07 00:00"],
    "click": [0, 1, 1, 0],
    "user": [7, 8, 7, 9],
    "session": ["a", "b", "a", "c"],
    "shown": [1.0, 0.0, 2.5, 1.0],
    "item": ["x", "y", "x", None],
}


@pytest.mark.parametrize("kind", ["header", "no header", "parquet"])
def test_no_prediction_needs_weights_times_and_groups(tmp_path: Path, kind: str) -> None:
    """They may be absent, or hold anything; but a time that a feature is made of is needed."""
    made = VISITS.replace("[columns]", "[file]\nheader = false\n[columns]") if kind == "no header" else VISITS
    with_hour = made + '[derived]\nhour = { kind = "categorical", from = "when", part = "hour" }\n'

    def write(name: str, rows: dict[str, list[Any]]) -> str:
        path = tmp_path / name
        if kind == "parquet":
            pa_parquet.write_table(pa.table(rows), path)
        else:
            path.write_bytes(as_csv(rows) if kind == "header" else as_csv(rows).partition(b"\n")[2])
        return str(path)

    unneeded = ["when", "click", "session", "shown"]
    files = {
        "all": VISIT_ROWS,
        "wrong": VISIT_ROWS | {column: ["?", "", "?", "?"] for column in unneeded},
        "no label": {name: values for name, values in VISIT_ROWS.items() if name != "click"},
        "bare": {name: values for name, values in VISIT_ROWS.items() if name not in unneeded},
    }
    sources = {name: write(name, rows) for name, rows in files.items()}
    found = []
    for toml, out in ((made, "out"), (with_hour, "with hour")):
        prepare_clicks([sources["all"]], tmp_path / out, settings(toml, tmp_path, test_fraction=0), silent)
    for name, source in sources.items():
        later = PrepareSettings(like=tmp_path / "out", labelled=False)
        manifest = prepare_clicks([source], tmp_path / f"{name}.out", later, silent)
        with h5py.File(tmp_path / f"{name}.out" / "test-00000.h5") as shard:
            assert shard["weight"][:].tolist() == [1, 1, 1, 1]
        found.append(read(tmp_path / f"{name}.out", manifest))
        assert found[-1]["label"] == [0] * 4
    assert found[0]["user"] == VISIT_ROWS["user"]
    assert found == [found[0]] * 4
    later = PrepareSettings(like=tmp_path / "with hour", labelled=False)
    problem = {
        "header": "bare:1: no column named 'when'",
        "no header": "bare: the first row has 2 fields; rows to score have 6, or 3 without click, session, shown, or 5",
        "parquet": "bare: no column named 'when'",
    }[kind]
    with pytest.raises(DataError, match=problem):
        prepare_clicks([sources["bare"]], tmp_path / "refused", later, silent)
    timed = {name: values for name, values in VISIT_ROWS.items() if name not in ("click", "session", "shown")}
    manifest = prepare_clicks([write("timed", timed)], tmp_path / "timed.out", later, silent)
    assert read(tmp_path / "timed.out", manifest)["hour"] == [7, 8, 23, 0]


def test_times_and_groups_are_looked_for_and_older_manifests_are_read(tmp_path: Path) -> None:
    (tmp_path / "clicks").write_bytes(as_csv(VISIT_ROWS))
    out, later = tmp_path / "out", PrepareSettings(like=tmp_path / "out")
    manifest = prepare_clicks([str(tmp_path / "clicks")], out, settings(VISITS, tmp_path), silent)
    for name in ("timestamp", "group"):
        with h5py.File(out / "test-00000.h5", "r+") as shard:
            shard.move(name, "elsewhere")
        with h5py.File(out / "test-00000.h5") as shard, pytest.raises(DataError, match=f"has no dataset {name}"):
            check_datasets(out / "test-00000.h5", shard, manifest, manifest.test[0])
        with h5py.File(out / "test-00000.h5", "r+") as shard:
            shard.move("elsewhere", name)
    for wrong in ("label", "timestamp"):
        document = json.loads(manifest.to_json())
        document["others"].append(wrong)
        with pytest.raises(DataError, match="others"):
            ShardManifest.from_json(json.dumps(document))
    del document["others"]
    document["labels"] = ["label"]
    (out / "manifest.json").write_text(json.dumps(document))
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "later", later, silent)
