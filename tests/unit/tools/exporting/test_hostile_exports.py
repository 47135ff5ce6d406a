"""What `bagpipe export` cannot do is refused in one message, with exit code 2, and nothing is changed or left."""

import errno
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.tools.exporting import tables
from tests.ragged_shards import write_ragged

STEP = "step-00000003"


class Place:
    """A copy of the trained model, for one test to damage.

    Attributes:
        folder: it lies in.
        checkpoint: the checkpoint's folder.
        shards: the data.
        arguments: of the command, without its name.
    """

    def __init__(self, folder: Path, trained: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.checkpoint = folder / "run" / "checkpoints" / STEP
        self.shards = folder / "shards"
        shutil.copytree(trained / "run", folder / "run")
        shutil.copytree(trained / "shards", self.shards)
        self.arguments = [str(self.checkpoint), "--to", str(folder / "exported"), "--data", str(self.shards)]

    def change(self, path: Path, **fields: object) -> None:
        """Change fields of a JSON file."""
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | fields))

    def change_manifest(self, **fields: object) -> None:
        """Change fields of the checkpoint's manifest."""
        self.change(self.checkpoint / "manifest.json", **fields)

    def spoil(self, path: Path) -> None:
        """Change the last byte of a file."""
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    def config(self, section: str, **settings: object) -> None:
        """Change settings that the checkpoint records."""
        recorded = json.loads((self.checkpoint / "manifest.json").read_text())["config"]
        recorded[section] |= settings
        self.change_manifest(config=recorded)

    def set(self, option: str, value: str) -> None:
        """Give an option another value."""
        self.arguments[self.arguments.index(option) + 1] = value


def _no_checkpoint(place: Place) -> None:
    place.arguments[0] = str(place.folder / "absent")


def _a_file(place: Place) -> None:
    place.arguments[0] = str(place.shards / "manifest.json")


def _no_run(place: Place) -> None:
    place.arguments[0] = str(place.shards.parent)


def _incomplete(place: Place) -> None:
    partial = place.checkpoint.with_name(f"{STEP}.partial")
    place.checkpoint.rename(partial)
    place.arguments[0] = str(partial)


def _cut_manifest(place: Place) -> None:
    (place.checkpoint / "manifest.json").write_text('{"format": "bagpipe-')


def _later_version(place: Place) -> None:
    place.change_manifest(version=99)


def _no_rows(place: Place) -> None:
    next(place.checkpoint.glob("rows-*")).unlink()


def _short_rows(place: Place) -> None:
    os.truncate(next(place.checkpoint.glob("rows-*")), 900)


def _spoilt_rows(place: Place) -> None:
    place.spoil(max(place.checkpoint.glob("rows-*")))


def _spoilt_dense(place: Place) -> None:
    place.spoil(place.checkpoint / "dense.h5")


def _another_model(place: Place) -> None:
    place.config("model", deep_mlp=[9])


def _unknown_model(place: Place) -> None:
    place.config("model", name="nowhere.models:Mine")


def _unknown_setting(place: Place) -> None:
    place.config("model", depth=3)


def _other_widths(place: Place) -> None:
    place.config("model", embedding_dim_of={"user": 6})


def _no_base(place: Place) -> None:
    place.change_manifest(base={"step": 1, "manifest_sha256": "0" * 64})


def _no_best(place: Place) -> None:
    place.arguments[0] = str(place.folder / "run")
    place.arguments.append("--best")


def _folder_there(place: Place) -> None:
    (place.folder / "exported").mkdir()


def _file_there(place: Place) -> None:
    (place.folder / "exported").write_text("mine")


def _link_there(place: Place) -> None:
    (place.folder / "exported").symlink_to("nowhere")


def _no_parent(place: Place) -> None:
    place.set("--to", str(place.folder / "absent" / "exported"))


def _parent_is_a_file(place: Place) -> None:
    place.set("--to", str(place.folder / "run" / "config.toml" / "exported"))


def _parent_is_read_only(place: Place) -> None:
    place.set("--to", "/proc/exported")


def _long_name(place: Place) -> None:
    place.set("--to", str(place.folder / ("x" * 300)))


def _nul_in_name(place: Place) -> None:
    place.set("--to", str(place.folder / "x\0y"))


def _no_data(place: Place) -> None:
    place.set("--data", str(place.folder / "absent"))


def _moved_data(place: Place) -> None:
    del place.arguments[-2:]
    place.config("data", path=str(place.folder / "moved"))


def _other_data(place: Place) -> None:
    shutil.rmtree(place.shards)
    write_ragged(place.shards)


def _other_vocabulary(place: Place) -> None:
    place.change_manifest(vocabularies="0" * 64)


def _other_rows_of_an_older_program(place: Place) -> None:
    place.change_manifest(vocabularies=None, training_data="0" * 64)


def _spoilt_vocabulary(place: Place) -> None:
    place.spoil(place.shards / "vocabularies.h5")


def _no_vocabulary(place: Place) -> None:
    (place.shards / "vocabularies.h5").unlink()


def _cut_shard_manifest(place: Place) -> None:
    (place.shards / "manifest.json").write_text("{")


def _full_disk(place: Place) -> None:
    place.patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))


def _disk_fills_up(place: Place) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place.patch.setattr(tables.ExportedTable, "pieces", fail)


def _no_onnx(place: Place) -> None:
    place.patch.setattr(importlib.util, "find_spec", lambda _: None)
    place.arguments.append("--onnx")


def _unknown_tables(place: Place) -> None:
    place.arguments += ["--tables", "csv"]


def _no_bytes(place: Place) -> None:
    place.arguments += ["--file-bytes", "0"]


def _nowhere(place: Place) -> None:
    del place.arguments[1:3]


HOSTILE: dict[Callable[[Place], None], str] = {
    _no_checkpoint: "absent; name a checkpoint",
    _a_file: "cannot be read (Not a directory)",
    _no_run: "is absent, so this is no complete checkpoint",
    _incomplete: "was never completed",
    _cut_manifest: "manifest.json: is no JSON",
    _later_version: "version is 99",
    _no_rows: "is absent; restore it",
    _short_rows: "has 900 bytes",
    _spoilt_rows: "it is damaged",
    _spoilt_dense: "dense.h5: its SHA-256",
    _another_model: "does not fit model.name = 'wide_deep'",
    _unknown_model: "there is no module nowhere",
    _unknown_setting: "model.depth = 3: no such setting",
    _other_widths: "table_widths are [",
    _no_base: "which is absent",
    _no_best: "best.json: is absent",
    _folder_there: "exported: is there already",
    _file_there: "exported: is there already",
    _link_there: "exported: is there already",
    _no_parent: "absent is no folder; make it first",
    _parent_is_a_file: "config.toml is no folder",
    _parent_is_read_only: "--to = '/proc/exported' cannot be written: /proc: ",
    _long_name: "use a shorter name",
    _nul_in_name: "is no name of a folder",
    _no_data: "name a folder that bagpipe prepare has written",
    _moved_data: "--data",
    _other_data: "was trained with other ids",
    _other_vocabulary: "vocabularies 000000000000 then",
    _other_rows_of_an_older_program: "has other training rows",
    _spoilt_vocabulary: "vocabularies.h5",
    _no_vocabulary: "vocabularies.h5",
    _cut_shard_manifest: "manifest.json: is no JSON",
    _full_disk: "0 MB free; make room",
    _disk_fills_up: "cannot be written (No space left on device)",
    _no_onnx: "onnxscript is not installed",
    _unknown_tables: "invalid choice: 'csv'",
    _no_bytes: "--file-bytes",
    _nowhere: "required: --to",
}


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder, with what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else file_sha256(path)
        found[str(path.relative_to(folder))] = kind
    return found


@pytest.mark.parametrize("damage", HOSTILE, ids=lambda damage: damage.__name__.strip("_"))
def test_hostile_inputs_are_refused(
    damage: Callable[[Place], None],
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = Place(tmp_path, trained, monkeypatch)
    damage(place)
    before = contents(tmp_path)
    try:
        code = main(["export", *place.arguments])
    except SystemExit as ended:  # argparse
        code = ended.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.count("error: ") == 1
    assert HOSTILE[damage] in said.err
    assert "Traceback" not in said.err
    assert contents(tmp_path) == before


def test_an_interrupted_export_leaves_nothing(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, trained, monkeypatch)
    before = contents(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables.ExportedTable, "pieces", interrupt)
    assert main(["export", *place.arguments]) == 130
    assert contents(tmp_path) == before
