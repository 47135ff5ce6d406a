"""What lies in the folder of an exported model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.vocabularies.vocabulary import read_table_vocabulary
from bagpipe_hpc.tools.exporting.export import ExportSettings, export_checkpoint
from bagpipe_hpc.tools.exporting.tables import ExportedTable, require_names, shared_files

WAYS: dict[str, dict[str, Any]] = {
    "one file": {},
    "several files": {"most_file_bytes": 4000},
    "parquet": {"tables": "parquet"},
}
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model, exported in each way."""
    folder = tmp_path_factory.mktemp("exported")
    for way, settings in WAYS.items():
        export_checkpoint(ExportSettings(load_checkpoint(trained / "run"), folder / way, **settings), print)
    return {way: folder / way for way in WAYS}


def weights_of(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The tables of a checkpoint by name, read as docs/checkpoints.md says."""
    found = {}
    for number, group in enumerate(checkpoint.manifest.groups):
        records = checkpoint.read_rows(0, group.total_rows, number)
        ends = [*group.tables.offsets[1:].tolist(), group.total_rows]
        for name, first, last in zip(group.tables.names, group.tables.offsets, ends, strict=False):
            found[name] = records[first:last, : group.width]
    return found


@pytest.mark.parametrize("way", ["one file", "several files"])
def test_tables_are_those_of_the_checkpoint(way: str, trained: Path, exported: dict[str, Path]) -> None:
    """Each a tensor of its own, without the optimizer's state; the library reads them."""
    expected = weights_of(load_checkpoint(trained / "run"))
    index = json.loads((exported[way] / "tables.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    found = {name: table for file in files for name, table in load_file(exported[way] / file).items()}
    assert found.keys() == expected.keys() == index["weight_map"].keys()
    for name, table in found.items():
        assert table.tobytes() == expected[name].tobytes()
        assert name in load_file(exported[way] / index["weight_map"][name])
    assert index["metadata"]["total_size"] == sum(table.nbytes for table in expected.values())
    assert {table.shape[1] for table in found.values()} == {4, 6}
    assert (len(files) > 1) == (way == "several files")


def test_parquet_has_ids_values_and_weights(trained: Path, exported: dict[str, Path]) -> None:
    expected, manifest = weights_of(load_checkpoint(trained / "run")), load_manifest(trained / "shards")
    schema = json.loads((exported["parquet"] / "schema.json").read_text())
    kinds = set()
    for table in schema["tables"]:
        columns = pq.read_table(exported["parquet"] / table["file"]).to_pydict()
        assert columns["id"] == list(range(table["rows"]))
        assert np.array(columns["weights"], np.float32).tobytes() == expected[table["name"]].tobytes()
        vocabulary = read_table_vocabulary(trained / "shards", manifest, table["name"])
        values: list[Any] = [None] * table["rows"]
        for row, value in zip(vocabulary.ids.tolist(), vocabulary.values.tolist(), strict=True):
            values[row] = value
        assert columns["value"] == values
        kinds |= {type(value) for value in values}
    assert kinds == {int, str, type(None)}


@pytest.mark.parametrize("way", WAYS)
def test_the_manifest_lists_every_file(way: str, trained: Path, exported: dict[str, Path]) -> None:
    folder, checkpoint = exported[way], load_checkpoint(trained / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    found = {info["file"]: (info["bytes"], info["sha256"]) for info in manifest["files"]}
    others = {path.name: (path.stat().st_size, file_sha256(path)) for path in folder.iterdir()}
    del others["manifest.json"]
    assert found == others
    assert manifest["checkpoint"]["step"] == checkpoint.manifest.step == 3
    assert manifest["checkpoint"]["manifest_sha256"] == file_sha256(checkpoint.directory / MANIFEST_FILE)
    assert manifest["checkpoint"]["vocabularies"] == checkpoint.manifest.vocabularies is not None
    assert tuple(manifest["checkpoint"]["columns"]) == checkpoint.manifest.columns != ()
    assert manifest["program"] == {"linear": "torch", "largest_difference": 0.0}


def test_dense_weights_are_those_of_the_checkpoint(trained: Path, exported: dict[str, Path]) -> None:
    expected, _ = load_checkpoint(trained / "run").read_dense()
    found = load_file(exported["one file"] / "dense.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in expected.items()
    }


def test_the_schema_says_how_raw_rows_become_features(exported: dict[str, Path]) -> None:
    schema = json.loads((exported["one file"] / "schema.json").read_text())
    columns = {column["name"]: column for column in schema["raw"]["columns"]}
    assert schema["raw"]["separator"] == ","
    assert columns["history"]["separator"] == "|"
    assert columns["visits"] == {"kind": "dense", "name": "visits", "log": True, "bucketed": False}
    assert schema["labels"] == ["click", "buy"]
    features = {feature["name"]: feature for feature in schema["features"]}
    assert features["history"] == {
        "name": "history",
        "table": features["item"]["table"],
        "ragged": True,
        "weighted": False,
        "pooling": "sum",
        "most_ids": 9,
    }
    assert schema["preparation"]["min_count"] == 2


def test_the_loader_has_15_lines_and_stands_in_the_docs(exported: dict[str, Path]) -> None:
    """Lines of code, without blanks and the docstring."""
    loader = (exported["one file"] / "load_model.py").read_text()
    code = re.sub(r'^""".*?"""\n', "", loader, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    assert "bagpipe" not in code
    assert f"```python{code}```" in (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_the_readme_names_every_feature(exported: dict[str, Path]) -> None:
    text = (exported["one file"] / "README.md").read_text()
    for feature in ("user", "item", "history", "genres"):
        assert f"| {feature} |" in text
    assert "the last 9" in text
    assert "any number, with a weight each" in text
    schema = json.loads((exported["one file"] / "schema.json").read_text())
    numbers = [column["name"] for column in schema["raw"]["columns"] if column["kind"] == "dense"]
    assert len(numbers) == schema["dense_features"] > 1
    assert f"Columns of `dense`, in their order: {', '.join(numbers)}. " in text
    assert "bit for bit" in text


def test_a_name_that_safetensors_keeps_is_refused() -> None:
    with pytest.raises(DataError, match="a table is named __metadata__"):
        require_names([ExportedTable(name, 1, 1, 0, 0) for name in ("C1", "__metadata__")])


def test_tables_share_files_up_to_the_limit() -> None:
    tables = [ExportedTable(str(rows), rows, 1, 0, 0) for rows in (10, 20, 30, 100, 5, 5)]
    names = [[table.name for table in group] for group in shared_files(tables, 4 * 60)]
    assert names == [["10", "20", "30"], ["100"], ["5", "5"]]
    assert [len(group) for group in shared_files(tables, 1)] == [1] * 6
