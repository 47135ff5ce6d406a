"""The ids that an exported folder gives raw values are those that the preparation gave them."""

import csv
import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.exporting.schema import value_kinds
from bagpipe_hpc.tools.exporting.vocabularies import ExportedValues, write_vocabularies
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.recorded import recorded_format
from tests.unit.tools.exporting.trained_models import batches_of

ROWS = 600
WAYS: dict[str, dict[str, Any]] = {
    "frequent values": {"min_count": 3},
    "unseen buckets": {"min_count": 2, "unseen_buckets": 5},
    "hashed": {"max_rows_per_table": 60},
}


def value_ids_of(folder: Path) -> ModuleType:
    """The script that lies beside an exported model."""
    spec = importlib.util.spec_from_file_location("value_ids", folder / "value_ids.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def export_values(shards: Path, folder: Path) -> ModuleType:
    """Write what the script needs, without a model."""
    import bagpipe_hpc.tools.exporting as package

    folder.mkdir()
    manifest = load_manifest(shards)
    values = [ExportedValues(shards, manifest, table.name) for table in manifest.tables]
    files, _ = write_vocabularies(folder, values)
    kinds = value_kinds(recorded_format(shards, manifest)[0].layout)
    tables = [
        {
            "name": own.name,
            "vocabulary": files[own.name],
            "buckets": own.buckets,
            "values": own.kind,
            "hashes": kinds[own.name] if own.is_hashed else None,
        }
        for own in values
    ]
    (folder / "schema.json").write_text(json.dumps({"tables": tables}))
    script = Path(package.__file__).parent / "served" / "value_ids.py"
    (folder / "value_ids.py").write_text(script.read_text())
    return value_ids_of(folder)


def test_ids_of_criteo(tmp_path: Path) -> None:
    """Hexadecimal numbers, missing ones among them."""
    clicks = tmp_path / "clicks.tsv"
    generate_clicks(ROWS, clicks)
    prepare_clicks([str(clicks)], tmp_path / "shards", PrepareSettings(test_fraction=0.5), print)
    served = export_values(tmp_path / "shards", tmp_path / "exported")
    (expected,) = batches_of(tmp_path / "shards", ROWS)
    fields = [line.split("\t") for line in clicks.read_text().splitlines()[ROWS // 2 :]]
    for place, name in enumerate(expected["ids"]):
        values = [int(row[14 + place], 16) if row[14 + place] else None for row in fields]
        assert served.value_ids(name, values) == expected["ids"][name]
    with pytest.raises(
        TypeError, match=r"table C1: '05db9164' is given, and its values are numbers .* int\(text, 16\)"
    ):
        served.value_ids("C1", [7, None, "05db9164"])


@pytest.mark.parametrize("way", WAYS)
def test_ids_of_integers_and_texts(way: str, tmp_path: Path) -> None:
    """Lists, texts, features that share a table."""
    visits = tmp_path / "visits.csv"
    generate_clicks(ROWS, visits, kind="sequences")
    settings = PrepareSettings(source_format="sequences", test_fraction=0.5, **WAYS[way])
    prepare_clicks([str(visits)], tmp_path / "shards", settings, print)
    served = export_values(tmp_path / "shards", tmp_path / "exported")
    (expected,) = batches_of(tmp_path / "shards", ROWS)
    with visits.open(newline="") as file:
        rows = list(csv.DictReader(file))[ROWS // 2 :]
    assert served.value_ids("user", [int(row["user"]) for row in rows]) == expected["ids"]["user"]
    histories = [[int(item) for item in row["history"].split("|") if item] for row in rows]
    assert [served.value_ids("item", history) for history in histories] == expected["ids"]["history"]
    genres = [[pair.partition(":")[0] for pair in row["genres"].split("|") if pair] for row in rows]
    table = next(feature.table for feature in load_manifest(tmp_path / "shards").features if feature.name == "genres")
    assert [served.value_ids(table, own) for own in genres] == expected["ids"]["genres"]
    with pytest.raises(TypeError, match=rf"table {table}: 7 is given, and its values are texts"):
        served.value_ids(table, [7])
    with pytest.raises(TypeError, match="table user: '7' is given, and its values are numbers"):
        served.value_ids("user", ["7"])
    buckets = WAYS[way].get("unseen_buckets", 0)
    unseen = served.value_ids("user", [None, 1 << 62, -5])
    assert unseen[0] == 0
    assert all((1 <= row <= buckets) if buckets else (row == 0 or way == "hashed") for row in unseen[1:])
    assert served.value_ids("user", [None, *np.array([1 << 62, -5])]) == unseen
    assert (
        served.value_ids("user", np.array([True])) == served.value_ids("user", [True]) == served.value_ids("user", [1])
    )
    seen = [int(row["user"]) for row in rows]
    assert served.value_ids("user", np.array(seen)) == served.value_ids("user", seen)
    for value in (math.nan, np.float64(3)):  # as pandas has them where one is missing
        with pytest.raises(TypeError, match=r"table user: .* is given, .*; whole ones, None is a missing one"):
            served.value_ids("user", [value])
