"""The folder of an exported model is read back as it was written, and refused by name where it was not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.preparation.resume import verify_share
from bagpipe_hpc.storage import exported
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.exported import ExportedModel, is_exported, load_exported
from bagpipe_hpc.storage.tensor_file import StreamedTensor, write_tensors

C1 = np.arange(20, dtype=np.float32).reshape(5, 4)
C2 = np.arange(6, dtype=np.float32).reshape(3, 2)
VALUES, IDS = np.array([70, 50], np.int64), np.array([2, 4], np.int64)
TEXTS = {"fünf": 1, 'a "b"': 2}
DENSE = {"top.weight": torch.arange(6.0).reshape(2, 3), "top.scale": torch.tensor(2, dtype=torch.bfloat16)}
CHECKPOINT: dict[str, object] = {"step": 7, "training_data": "1" * 64, "vocabularies": "a" * 64}


def tensor(name: str, kind: str, numbers: np.ndarray) -> StreamedTensor:
    return StreamedTensor(name, kind, numbers.shape, lambda: [numbers])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """C1 has a bucket and a free id; the values of C2 are texts."""
    path = tmp_path / "exported"
    path.mkdir()
    write_tensors(path / "tables.safetensors", [tensor("C1", "F32", C1), tensor("C2", "F32", C2)], {})
    numbers = [tensor("C1.values", "I64", VALUES), tensor("C1.ids", "I64", IDS)]
    write_tensors(path / "vocabulary.safetensors", numbers, {})
    (path / "vocabulary-1.json").write_text(json.dumps(TEXTS, ensure_ascii=False), encoding="utf-8")
    raw = DENSE["top.scale"].reshape(1).view(torch.uint8).numpy()
    dense = [
        tensor("top.weight", "F32", DENSE["top.weight"].numpy()),
        StreamedTensor("top.scale", "BF16", (), lambda: [raw]),
    ]
    write_tensors(path / "dense.safetensors", dense, {})
    tables = [
        table("C1", 5, 4, "vocabulary.safetensors", "numbers", 1),
        table("C2", 3, 2, "vocabulary-1.json", "texts", 0),
    ]
    (path / "schema.json").write_text(json.dumps({"tables": tables}))
    seal(path)
    return path


def table(name: str, rows: int, width: int, vocabulary: str, values: str, buckets: int) -> dict[str, Any]:
    about = {"name": name, "rows": rows, "width": width, "file": "tables.safetensors", "vocabulary": vocabulary}
    return {**about, "values": values, "buckets": buckets}


def seal(path: Path, **changes: Any) -> None:
    """Write the manifest of what is there."""
    listed = sorted(file for file in path.iterdir() if file.name != "manifest.json")
    files = [{"file": file.name, "bytes": file.stat().st_size, "sha256": file_sha256(file)} for file in listed]
    manifest = {"format": "bagpipe-export", "version": 1, "checkpoint": CHECKPOINT, "files": files, **changes}
    (path / "manifest.json").write_text(json.dumps(manifest))


def read_table(model: ExportedModel, name: str) -> np.ndarray:
    with model.open_table(name) as rows:
        return np.concatenate([rows.read(row, row + 1) for row in range(rows.rows)])


def test_what_was_written_is_read(folder: Path) -> None:
    assert is_exported(folder)
    model = load_exported(folder)
    model.verify()
    assert (model.step, model.training_data, model.vocabularies) == (7, "1" * 64, "a" * 64)
    assert (model.table_names, model.table_rows, model.table_widths) == (("C1", "C2"), (5, 3), (4, 2))
    assert np.array_equal(read_table(model, "C1"), C1)
    assert np.array_equal(read_table(model, "C2"), C2)
    first, second = model.vocabulary("C1"), model.vocabulary("C2")
    assert (first.values.tolist(), first.ids.tolist(), first.unseen_buckets) == ([70, 50], [2, 4], 1)
    assert dict(zip(second.values, second.ids.tolist(), strict=True)) == TEXTS
    state, _ = model.read_dense()
    assert state.keys() == DENSE.keys()
    assert all(torch.equal(state[name], weight) for name, weight in DENSE.items())


def test_a_file_of_many_tables_is_asked_once_where_they_lie(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, asked = exported.tensor_places, []

    def tensor_places(path: Path) -> dict[str, exported.TensorPlace]:
        asked.append(path.name)
        return places(path)

    model = load_exported(folder)
    monkeypatch.setattr(exported, "tensor_places", tensor_places)
    for name in ("C1", "C2", "C1"):
        read_table(model, name)
        model.vocabulary(name)
    assert sorted(asked) == ["tables.safetensors", "vocabulary.safetensors"]


def test_columns_are_those_of_the_checkpoint_where_they_are_recorded(folder: Path) -> None:
    model = load_exported(folder)
    assert (model.columns, model.hashed_from) == ((), {})
    seal(folder, checkpoint={**CHECKPOINT, "columns": ["label y", "0 dense"], "hashed_from": {"C2": ["{}"]}})
    model = load_exported(folder)
    assert (model.columns, model.hashed_from) == (("label y", "0 dense"), {"C2": {"{}"}})


@pytest.mark.parametrize(
    "wrong", [{"columns": "text"}, {"columns": [1]}, {"hashed_from": []}, {"hashed_from": {"C": 1}}]
)
def test_columns_that_are_none_are_damage(folder: Path, wrong: dict[str, object]) -> None:
    seal(folder, checkpoint={**CHECKPOINT, **wrong})
    with pytest.raises(CheckpointError, match=r"manifest\.json or schema\.json is damaged"):
        load_exported(folder)


def test_other_folders_are_not_taken_for_one(tmp_path: Path) -> None:
    assert not is_exported(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text('{"format": "bagpipe-checkpoint"}')
    assert not is_exported(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    assert not is_exported(tmp_path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def spoil_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1))


def give_length(path: Path) -> None:
    path.write_bytes((1 << 62).to_bytes(8, "little") + path.read_bytes()[8:])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("tables.safetensors", Path.unlink, r"tables\.safetensors: is absent"),
        ("tables.safetensors", cut, r"tables\.safetensors: has \d+ bytes instead of"),
        ("vocabulary-1.json", cut, r"vocabulary-1\.json: has \d+ bytes instead of"),
    ],
)
def test_missing_and_cut_files_are_found_at_once(
    folder: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder / name)
    with pytest.raises(CheckpointError, match=message):
        load_exported(folder).verify(quick=True)


def test_changed_bytes_are_found(folder: Path) -> None:
    path = folder / "tables.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    load_exported(folder).verify(quick=True)
    with pytest.raises(CheckpointError, match=r"tables\.safetensors: differs, by the manifest"):
        load_exported(folder).verify()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("tables.safetensors", 4 * 9, "table C1, row 2"),
        ("tables.safetensors", 4 * (C1.size + 5), "table C2, row 2"),
        ("dense.safetensors", 4 * 3, r"dense weight top\.weight"),
        ("dense.safetensors", 4 * 6, r"dense weight top\.scale"),
    ],
)
def test_what_is_not_finite_is_found_by_its_name(
    folder: Path, name: str, place: int, what: str, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests agree: the model had diverged before it was exported."""
    monkeypatch.setattr(exported, "_PIECE_NUMBERS", 4)
    verify_share(load_exported(folder), 0, 1)
    path = folder / name
    content = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little") + place
    number = np.array(wrong, np.float32).tobytes()
    content[begin : begin + 4] = number[2:] if what.endswith("scale") else number  # half of float32 is bfloat16
    path.write_bytes(content)
    seal(path.parent)
    with pytest.raises(CheckpointError, match=rf"{name}: {what} holds NaN or infinity"):
        verify_share(load_exported(folder), 0, 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil_header, "does not lie in the file|header is damaged"),
        (give_length, "is no safetensors file"),
        (lambda path: path.write_bytes(b"xx"), "is no safetensors file"),
        (cut, "does not lie in the file"),
        (lambda path: path.write_bytes((3).to_bytes(8, "little") + b"[1]"), "header is damaged"),
    ],
)
def test_a_file_that_a_stranger_wrote_is_refused_before_anything_is_allocated(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder / "tables.safetensors")
    seal(folder)
    model = load_exported(folder)
    model.verify()
    with pytest.raises(CheckpointError, match=rf"tables\.safetensors: .*({message}).*export the model again"):
        read_table(model, "C1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 6}, r"has no tensor C1 of F32 \(6, 4\)"),
        ({"width": 2}, r"has no tensor C1 of F32 \(5, 2\)"),
        ({"file": "nowhere.safetensors"}, r"nowhere\.safetensors: cannot be read"),
        ({"file": "table-00000.parquet"}, "cannot begin with tables in Parquet; export the model with --tables"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    schema = json.loads((folder / "schema.json").read_text())
    schema["tables"][0] |= change
    (folder / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(CheckpointError, match=message):
        read_table(load_exported(folder), "C1")


def test_ids_that_are_none_of_the_table_are_refused(folder: Path) -> None:
    schema = json.loads((folder / "schema.json").read_text())
    schema["tables"][0]["buckets"] = 2
    (folder / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(CheckpointError, match="the ids of C1 are not ascending ones of its 5 rows"):
        load_exported(folder).vocabulary("C1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": None}, r"schema\.json: the vocabulary of C2 is damaged: ValueError"),
        ({"vocabulary": "other.json"}, r"the vocabulary of C2 is damaged: KeyError\('other\.json'\)"),
        ({"buckets": "none"}, "the vocabulary of C2 is damaged: ValueError"),
    ],
)
def test_a_vocabulary_that_the_schema_does_not_describe_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    schema = json.loads((folder / "schema.json").read_text())
    schema["tables"][1] |= change
    (folder / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(CheckpointError, match=message):
        load_exported(folder).vocabulary("C2")


@pytest.mark.parametrize("number", [3, -1, 1 << 63, 1.5, True, "1", None])
def test_texts_with_ids_that_are_none_are_refused(folder: Path, number: object) -> None:
    (folder / "vocabulary-1.json").write_text(json.dumps({"a": number}))
    with pytest.raises(CheckpointError, match=r"vocabulary-1\.json: the ids of C2 are not all numbers below 3"):
        load_exported(folder).vocabulary("C2")


@pytest.mark.parametrize("change", [{"rows": 10**12}, {"buckets": 10**12}, {"buckets": -7}])
@pytest.mark.parametrize("number", [0, 1])
def test_a_false_number_makes_no_list_of_ids(folder: Path, change: dict[str, int], number: int) -> None:
    """10 ** 12 ids would take 8 TB."""
    schema = json.loads((folder / "schema.json").read_text())
    schema["tables"][number].update(change)
    (folder / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(CheckpointError, match=r"has no tensor C. of F32|the vocabulary of C. is damaged.* buckets of"):
        load_exported(folder).vocabulary(f"C{number + 1}")


def test_texts_that_are_absent_are_refused(folder: Path) -> None:
    (folder / "vocabulary-1.json").unlink()
    with pytest.raises(CheckpointError, match=r"vocabulary-1\.json: cannot be read"):
        load_exported(folder).vocabulary("C2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "is 'bagpipe-export' version 2 instead of bagpipe-export version 1"),
        ({"checkpoint": {}}, r"manifest\.json or schema\.json is damaged: KeyError\('step'\)"),
        ({"files": 3}, r"manifest\.json or schema\.json is damaged: TypeError"),
        (
            {"files": [{"file": "../../etc/hostname", "bytes": 1, "sha256": "0" * 64}]},
            r"is damaged: .*'\.\./\.\./etc/hostname' where the name of a file of the folder must stand",
        ),
    ],
)
def test_a_manifest_that_lacks_something_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    seal(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_exported(folder)


def test_without_a_schema_it_is_refused(folder: Path) -> None:
    shutil.move(folder / "schema.json", folder / "other.json")
    with pytest.raises(CheckpointError, match=r"schema\.json: cannot be read"):
        load_exported(folder)
