"""Files are prepared by a schema alone, whatever their kind and order; Criteo's rows as its own format has them."""

import csv
import gzip
import io
import json
import lzma
from datetime import datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.shards.shard_file import check_datasets
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import load_schema, schema_of, to_document
from tests.real_clicks import SAMPLED_ROWS

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


def silent(_: str) -> None:
    """Progress that nobody reads."""


def settings(toml: str, folder: Path, **others: Any) -> PrepareSettings:
    path = folder / "schema.toml"
    path.write_text(toml)
    given = {"min_count": 1, "test_fraction": 0.25, **others}
    return PrepareSettings("schema", schema=to_document(load_schema(str(path))), **given)


def written(value: Any) -> str:
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def as_csv(rows: dict[str, list[Any]], missing: str = "") -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows)
    for values in zip(*rows.values(), strict=True):
        writer.writerow([missing if value is None else written(value) for value in values])
    return stream.getvalue().encode()


def read(output: Path, manifest: ShardManifest) -> dict[str, list[Any]]:
    """All that the shards hold, with values instead of their ids."""
    found: dict[str, list[Any]] = {"label": [], "dense": []}
    values = {
        table.name: [None, *read_vocabulary(output, manifest, table.name).tolist()]
        for table in manifest.tables
        if table.name not in manifest.hashed_tables
    }
    for split in ("train", "test"):
        with ClickShards(output, manifest, split) as shards:
            rows = (0, shards.rows)
            found["label"] += shards.read_labels(*rows).tolist()
            found["dense"] += shards.read_dense(*rows).tolist()
            sparse = shards.read_sparse(*rows)
            plain = [feature for feature in manifest.features if not feature.ragged]
            for place, feature in enumerate(plain):
                ids = sparse[:, place].tolist()
                found.setdefault(feature.name, []).extend(values[feature.table][id_] for id_ in ids)
    return found


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


LIMITED = """
[columns]
click = { kind = "label" }
x = { kind = "numeric", standardise = true }
y = { kind = "numeric", log = true, standardise = true, missing = 3 }
one = { kind = "categorical", values = "integer", min_count = 4 }
few = { kind = "categorical", values = "hex", max_rows = 5 }
same = { kind = "categorical", hash_rows = 7 }
narrow = { kind = "categorical", values = "hex", hash_rows = 9 }
cut = { kind = "categorical", values = "decimal", quantiles = 4 }
when = { kind = "timestamp", format = "%Y-%m-%d %H:%M" }
who = { kind = "group", values = "text" }
[derived]
x_cut = { kind = "categorical", from = "x", quantiles = 3 }
hour = { kind = "categorical", from = "when", part = "hour" }
weekday = { kind = "categorical", from = "when", part = "weekday" }
"""


def limited_rows(count: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(3)
    days = np.datetime64("2024-02-26T22:00") + np.arange(count) * np.timedelta64(50, "m")
    return {
        "click": rng.integers(0, 2, count).tolist(),
        "x": [None if row % 7 == 0 else float(value) for row, value in enumerate(rng.normal(1e6, 3, count))],
        "y": [None if row % 5 == 0 else float(value) for row, value in enumerate(rng.integers(0, 50, count))],
        "one": rng.integers(0, 9, count).tolist(),
        "few": [f"{value:x}" for value in rng.integers(0, 9, count)],
        "same": [f"v{value}" for value in rng.integers(0, 3, count)],
        "narrow": [f"{value:x}" for value in rng.integers(0, 99, count)],
        "cut": [round(float(value), 2) for value in rng.exponential(2.0, count)],
        "when": [str(day).replace("T", " ") for day in days],
        "who": [f"user {value}" for value in rng.integers(0, 5, count)],
    }


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_limits_of_tables_and_what_is_taken_from_the_training_rows(tmp_path: Path, backend: str) -> None:
    rows, train = limited_rows(60), 45
    (tmp_path / "clicks").write_bytes(as_csv(rows))
    manifest = prepare_clicks(
        [str(tmp_path / "clicks")], tmp_path / "out", settings(LIMITED, tmp_path, backend=backend), silent
    )
    assert manifest.rows("train") == train
    assert (manifest.labels, manifest.others) == (("click",), ("timestamp", "group"))
    assert load_manifest(tmp_path / "out") == manifest
    assert manifest.hashed_tables == ("few", "same", "narrow")
    sizes = {table.name: table.rows for table in manifest.tables}
    assert (sizes["few"], sizes["same"], sizes["narrow"]) == (5, 7, 9)
    found = read_vocabulary(tmp_path / "out", manifest, "one").tolist()
    counts = {value: rows["one"][:train].count(value) for value in range(9)}
    assert found == sorted((value for value in counts if counts[value] >= 4), key=lambda value: (-counts[value], value))
    assert manifest.settings is not None
    fitted = manifest.settings["fitted"]
    x = np.array([value for value in rows["x"][:train] if value is not None])
    y = np.log1p([3.0 if value is None else value for value in rows["y"][:train]])
    for name, numbers in (("x", x), ("y", y)):
        assert fitted[name]["mean"] == pytest.approx(numbers.mean(), rel=1e-12)
        assert fitted[name]["deviation"] == pytest.approx(numbers.std(), rel=1e-9)
    assert fitted["cut"]["bounds"] == [sorted(rows["cut"][:train])[k * train // 4] for k in (1, 2, 3)]
    with ClickShards(tmp_path / "out", manifest, "test") as shards:
        dense = shards.read_dense(0, 15)
    later = [value if value is None else (value - fitted["x"]["mean"]) for value in rows["x"][train:]]
    expected = [0 if value is None else value / fitted["x"]["deviation"] for value in later]
    assert dense[:, 0].tolist() == pytest.approx(expected, rel=1e-6)
    with h5py.File(tmp_path / "out" / "test-00000.h5") as shard:
        times, groups = shard["timestamp"][:], shard["group"][:]
    assert times.tolist() == [int(np.datetime64(when, "s").astype(np.int64)) for when in rows["when"][train:]]
    for first in range(15):
        for second in range(15):
            assert (groups[first] == groups[second]) == (rows["who"][train + first] == rows["who"][train + second])
    hours = read_vocabulary(tmp_path / "out", manifest, "hour").tolist()
    assert set(hours) == {int(when[11:13]) for when in rows["when"][:train]}
    days = read_vocabulary(tmp_path / "out", manifest, "weekday").tolist()
    assert set(days) == {datetime.fromisoformat(when).weekday() for when in rows["when"][:train]}


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


def test_later_rows_go_by_what_was_taken_from_the_earlier_ones(tmp_path: Path) -> None:
    rows = limited_rows(60)
    (tmp_path / "clicks").write_bytes(as_csv(rows))
    (tmp_path / "later").write_bytes(as_csv({name: values[45:] for name, values in rows.items()}))
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", settings(LIMITED, tmp_path), silent)
    prepare_clicks([str(tmp_path / "later")], tmp_path / "like", PrepareSettings(like=tmp_path / "out"), silent)
    assert (tmp_path / "out" / "test-00000.h5").read_bytes() == (tmp_path / "like" / "test-00000.h5").read_bytes()


def test_rows_like_those_of_a_folder_that_was_made_anew_with_other_numbers_are_not_there_yet(tmp_path: Path) -> None:
    rows, later = limited_rows(60), PrepareSettings(like=tmp_path / "out")
    (tmp_path / "clicks").write_bytes(as_csv(rows))
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", settings(LIMITED, tmp_path), silent)
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "like", later, silent)
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "like", later, silent)
    before = load_manifest(tmp_path / "out")
    document = json.loads((tmp_path / "out" / "manifest.json").read_text())
    document["settings"]["fitted"]["x"]["mean"] += 1
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(document))
    assert load_manifest(tmp_path / "out").vocabularies == before.vocabularies
    with pytest.raises(DataError, match=r"holds the finished preparation with fitted = \{.* instead of \{.*; choose"):
        prepare_clicks([str(tmp_path / "clicks")], tmp_path / "like", later, silent)


def test_a_manifest_without_what_was_taken_is_refused_for_later_rows(tmp_path: Path) -> None:
    (tmp_path / "clicks").write_bytes(as_csv(limited_rows(60)))
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", settings(LIMITED, tmp_path), silent)
    path = tmp_path / "out" / "manifest.json"
    document = json.loads(path.read_text())
    document["settings"]["fitted"]["x"]["deviation"] = 0
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"settings.fitted: .* has no mean and deviation of x; run bagpipe prepare"):
        prepare_clicks([str(tmp_path / "clicks")], tmp_path / "like", PrepareSettings(like=tmp_path / "out"), silent)


def test_rows_that_are_not_in_the_order_of_time_are_noted(tmp_path: Path) -> None:
    rows = limited_rows(60)
    rows["when"][30] = "2023-01-01 00:00"
    (tmp_path / "clicks").write_bytes(as_csv(rows))
    told: list[str] = []
    prepare_clicks([str(tmp_path / "clicks")], tmp_path / "out", settings(LIMITED, tmp_path), told.append)
    assert any(
        line.startswith("note: 1 of 60 rows are earlier than the row before them, row 31 first") for line in told
    )
