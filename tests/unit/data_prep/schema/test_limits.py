"""Limits of tables, and what is taken from the training rows: of later rows, too."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_vocabulary
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.unit.data_prep.schema.made_tables import as_csv, settings, silent

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
