"""A manifest is read as if a stranger had written it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import (
    Arithmetic,
    CheckpointManifest,
    load_checkpoint_manifest,
    row_file_name,
)

DIGEST = "0123456789abcdef" * 4


STANDING = {"measure": "auc", "samples": 9, "best_step": 40, "best": 0.75, "to_beat": 0.7, "without_better": 2}


HEARD = {"epoch": 0, "batch": 5, "log_loss": 0.5}


def manifest_of_two_servers() -> CheckpointManifest:
    return CheckpointManifest(
        step=100,
        epoch=1,
        epoch_step=20,
        seed=7,
        batch_size=32,
        train_samples=2560,
        training_data=DIGEST,
        evaluation_data=DIGEST[::-1],
        table_names=("C1", "C2"),
        table_rows=(5, 3),
        embedding_dim=4,
        row_optimizer="rowwise_adagrad",
        row_state_columns=1,
        row_state=(StateColumns("sum_of_mean_squares", per_weight=False),),
        servers=2,
        placement="round_robin",
        base=None,
        files=tuple(FileInfo(name, 2048, DIGEST) for name in (row_file_name(0, 2), row_file_name(1, 2), "dense.h5")),
        arithmetic=Arithmetic(trainers=2, linear="onednn", device="cpu", threads=1),
        config={"train": {"seed": 7, "output": "output"}, "model": {"bottom_mlp": [512, 256]}},
    )


def test_round_trip_through_json(tmp_path: Path) -> None:
    manifest = manifest_of_two_servers()
    path = tmp_path / "manifest.json"
    path.write_text(manifest.to_json())
    assert load_checkpoint_manifest(path) == manifest
    assert manifest.total_rows == 8
    assert manifest.record_columns(4) == 5
    assert manifest.total_bytes == 3 * 2048


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "bagpipe-shards"),
        ("version", 6),
        ("base", 90),
        ("base", {"step": 90}),
        ("base", {"step": 90, "manifest_sha256": "../../etc/passwd"}),
        ("base", {"step": "90", "manifest_sha256": DIGEST}),
        ("base", {"step": 100, "manifest_sha256": DIGEST}),
        ("version", True),
        ("placement", ""),
        ("placement", None),
        ("step", -1),
        ("step", "100"),
        ("step", 1.0),
        ("step", 2**63),
        ("epoch", None),
        ("epoch", 2),
        ("epoch_step", 21),
        ("epoch_step", True),
        ("seed", [7]),
        ("training_data", DIGEST[1:]),
        ("training_data", None),
        ("evaluation_data", DIGEST.upper()),
        ("table_names", ["C1"]),
        ("table_names", "C1"),
        ("table_names", [1, 2]),
        ("arithmetic", None),
        ("arithmetic", {"trainers": 2}),
        ("arithmetic", {"trainers": 0, "linear": "torch", "device": "cpu", "threads": 1}),
        ("arithmetic", {"trainers": 2, "linear": "auto", "device": "cpu", "threads": 1}),
        ("arithmetic", {"trainers": 2, "linear": ["torch"], "device": "cpu", "threads": 1}),
        ("arithmetic", {"trainers": 2, "linear": "torch", "device": "tpu", "threads": 1}),
        ("arithmetic", {"trainers": 2, "linear": "torch", "device": "cpu", "threads": 1.0}),
        ("config", {"train": 3}),
        ("table_rows", []),
        ("table_rows", {"0": 5}),
        ("table_rows", [5, 0]),
        ("table_rows", [5, True]),
        ("table_rows", [2**62, 2**62, 2**62]),
        ("table_widths", [4]),
        ("table_widths", [4, 4, 4]),
        ("table_widths", []),
        ("table_widths", [4, 0]),
        ("table_widths", [4, True]),
        ("table_widths", [4, "4"]),
        ("table_widths", 4),
        ("table_widths", {"C1": 4}),
        ("embedding_dim", 0),
        ("row_optimizer", ""),
        ("row_optimizer", 3),
        ("row_state_columns", -1),
        ("row_state", None),
        ("row_state", []),
        ("row_state", {"name": "sum", "per_weight": False, "first": 0.0}),
        ("row_state", ["sum"]),
        ("row_state", [{"name": "sum", "per_weight": False}]),
        ("row_state", [{"name": "", "per_weight": False, "first": 0.0}]),
        ("row_state", [{"name": "sum", "per_weight": 0, "first": 0.0}]),
        ("row_state", [{"name": "sum", "per_weight": True, "first": 0.0}]),
        ("row_state", [{"name": "sum", "per_weight": False, "first": 1e39}]),
        ("row_state", [{"name": "sum", "per_weight": False, "first": "0"}]),
        ("row_state", [{"name": "sum", "per_weight": False, "first": 0.0}] * 2),
        ("servers", 0),
        ("servers", 3),
        ("servers", 10**15),
        ("config", [1]),
        ("files", {}),
        ("files", []),
        ("files", [1, 2, 3]),
        ("standing", 1),
        ("standing", {"measure": "auc"}),
        ("standing", {**STANDING, "best_step": 100}),
        ("standing", {**STANDING, "best_step": -1}),
        ("standing", {**STANDING, "best": "0.75"}),
        ("heard", 1),
        ("heard", {}),
        ("heard", [1]),
        ("heard", [{"epoch": 0, "batch": 5}]),
        ("heard", [{**HEARD, "epoch": -1}]),
        ("heard", [{**HEARD, "batch": 0}]),
        ("heard", [{**HEARD, "batch": 81}]),
        ("heard", [{**HEARD, "batch": 5.0}]),
        ("heard", [{**HEARD, "epoch": 1, "batch": 20}]),
        ("heard", [{**HEARD, "epoch": 10**30}]),
        ("heard", [HEARD, HEARD]),
        ("heard", [{**HEARD, "batch": 6}, HEARD]),
        ("heard", [{**HEARD, "log_loss": "0.5"}]),
        ("unheard_of", 1),
    ],
)
def test_a_hostile_field_is_named_with_its_value(tmp_path: Path, field: str, value: object) -> None:
    document = json.loads(manifest_of_two_servers().to_json())
    document[field] = value
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint_manifest(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert len(message) < 1000
    assert field in message or (field == "servers" and "files" in message)


def test_a_standing_may_be_absent(tmp_path: Path) -> None:
    """Before there were any, or before the first evaluation."""
    document = json.loads(manifest_of_two_servers().to_json())
    path = tmp_path / "manifest.json"
    for standing in (None, STANDING):
        path.write_text(json.dumps(document | {"standing": standing}))
        found = load_checkpoint_manifest(path).standing
        assert (asdict(found) if found else None) == standing
    del document["standing"]
    path.write_text(json.dumps(document))
    assert load_checkpoint_manifest(path).standing is None


@pytest.mark.parametrize("name", ["best", "to_beat"])
def test_a_standing_has_finite_values(tmp_path: Path, name: str) -> None:
    """The first checkpoint of a run that went on from it could not be written."""
    document = json.loads(manifest_of_two_servers().to_json())
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document | {"standing": {**STANDING, name: 0.1875}}).replace("0.1875", "1e999"))
    with pytest.raises(CheckpointError, match=r"standing is .*inf.*with finite values"):
        load_checkpoint_manifest(path)


def test_what_was_heard_lies_before_the_step(tmp_path: Path) -> None:
    """Step 100 is batch 20 of the second epoch of 80 batches."""
    document = json.loads(manifest_of_two_servers().to_json())
    path = tmp_path / "manifest.json"
    places = [(0, 5), (0, 80), (1, 19)]
    heard = [{"epoch": epoch, "batch": batch, "log_loss": 0.5} for epoch, batch in places]
    path.write_text(json.dumps(document | {"heard": heard}))
    assert [one.place for one in load_checkpoint_manifest(path).heard] == places
    path.write_text(path.read_text().replace("0.5", "1e999"))
    with pytest.raises(CheckpointError, match=r"1e999|inf"):
        load_checkpoint_manifest(path)
    del document["heard"]
    path.write_text(json.dumps(document))
    assert load_checkpoint_manifest(path).heard == ()


@pytest.mark.parametrize(
    "field",
    sorted(
        {*json.loads(manifest_of_two_servers().to_json())}
        - {"standing", "table_widths", "data_step", "vocabularies", "columns", "heard"}
    ),
)
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    document = json.loads(manifest_of_two_servers().to_json())
    del document[field]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=field):
        load_checkpoint_manifest(path)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../etc/passwd"},
        {"file": "/etc/passwd"},
        {"file": "dense.h5"},
        {"file": "rows-00000-of-00002.h5\0"},
        {"file": 5},
        {"bytes": -1},
        {"bytes": "2048"},
        {"sha256": DIGEST.upper()},
        {"sha256": DIGEST + "\n"},
        {"sha256": None},
        {"link": "elsewhere"},
    ],
)
def test_a_hostile_file_entry_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    document: dict[str, Any] = json.loads(manifest_of_two_servers().to_json())
    document["files"][0].update(change)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="files"):
        load_checkpoint_manifest(path)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"3",
        b"null",
        b"[" * 200_000,
        b'{"step": 1, "step": 2}',
        b'{"step": NaN}',
        b'{"step": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_manifest_is_refused_by_name(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(contents)
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint_manifest(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert len(str(raised.value)) < 1000


def test_absent_and_unreadable_manifests_say_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is absent"):
        load_checkpoint_manifest(tmp_path / "manifest.json")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint_manifest(tmp_path)


def test_widths_may_be_absent_and_need_files_of_their_own(tmp_path: Path) -> None:
    document = json.loads(manifest_of_two_servers().to_json())
    path = tmp_path / "manifest.json"
    del document["table_widths"]
    path.write_text(json.dumps(document))
    assert load_checkpoint_manifest(path).widths == (4, 4)
    path.write_text(json.dumps(document | {"table_widths": [4, 2]}))
    with pytest.raises(CheckpointError, match=r"instead of 5 files, one a server and width and dense\.h5"):
        load_checkpoint_manifest(path)
    path.write_text(json.dumps(document | {"table_widths": [4, 2], "servers": 10**15}))
    with pytest.raises(CheckpointError, match=f"instead of {2 * 10**15 + 1} files"):
        load_checkpoint_manifest(path)
