"""What can be wrong with `prepare --like` and `--grow`: one clear message each, and nothing is lost or half written."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bagpipe_hpc.cli.commands import main
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows
from tests.unit.data_prep.plain_preparation import silent, write_text

Damage = Callable[[Path], object]
"""Does something to the folder `first`, whose siblings are `day_0`, `day_1`, `later` (like `first`) and `grown`."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    days = [write_text(folder / f"day_{day}", random_rows(40, seed=day)) for day in range(2)]
    prepare_clicks([days[0]], folder / "first", PrepareSettings(min_count=3, backend="reference"), silent)
    for name in ("like", "grow"):
        output = folder / {"like": "later", "grow": "grown"}[name]
        prepare_clicks([days[1]], output, PrepareSettings(**{name: folder / "first"}, backend="reference"), silent)
    return folder


def edit(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(first: Path) -> None:
        manifest = json.loads((first / "manifest.json").read_text())
        change(manifest)
        (first / "manifest.json").write_text(json.dumps(manifest))

    return damage


def setting(name: str, value: object) -> Damage:
    return edit(lambda manifest: manifest["settings"].update({name: value}))


def without(*path: str) -> Damage:
    def remove(manifest: dict[str, Any]) -> None:
        for name in path[:-1]:
            manifest = manifest[name]
        del manifest[path[-1]]

    return edit(remove)


def rewrite(name: str, change: Callable[[h5py.File], object]) -> Damage:
    """Changes an HDF5 file, and its entry in the manifest with it."""

    def damage(first: Path) -> None:
        path = first / f"{name}.h5"
        with h5py.File(path, "r+") as file:
            change(file)
        info = {"file": path.name, "bytes": path.stat().st_size}
        info["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        edit(lambda manifest: manifest.update({name: info}))(first)

    return damage


def replaced(dataset: str, values: object) -> Callable[[h5py.File], object]:
    def change(file: h5py.File) -> None:
        del file[dataset]
        file[dataset] = values

    return change


def cut(file: str, to: int = -1) -> Damage:
    return lambda first: (first / file).write_bytes((first / file).read_bytes()[:to])


def flip(file: str) -> Damage:
    def damage(first: Path) -> None:
        content = bytearray((first / file).read_bytes())
        content[-40] ^= 1
        (first / file).write_bytes(content)

    return damage


def unfinished(first: Path) -> None:
    (first / "manifest.json").rename(first / "preparation.json")


def no_text(first: Path) -> None:
    (first / "manifest.json").write_bytes(b"\xff\xfe{}")


def future(file: h5py.File) -> None:
    file.attrs["format"] = 99


def buckets(file: h5py.File) -> None:
    file.attrs["unseen_buckets"] = 2


FOLDERS = [
    (shutil.rmtree, r"first: no manifest.json here; name a folder that bagpipe prepare has written"),
    (unfinished, r"first: the preparation is not finished; run bagpipe prepare again to resume"),
    (cut("manifest.json", 90), r"manifest.json: is no JSON"),
    (no_text, r"manifest.json: is no UTF-8 text"),
    (without("settings"), r"manifest.json: settings is missing"),
    (without("settings", "min_count"), r"manifest.json: does not say how the rows were prepared"),
    (setting("min_count", "three"), r"settings.min_count is 'three' instead of int"),
    (setting("min_count", 0), r"manifest.json: settings: prepare: min-count = 0: use 1 or more"),
    (setting("test_fraction", True), r"settings.test_fraction is True instead of float"),
    (setting("format_options", ["dense"]), r"settings.format_options is \['dense'\] instead of an object"),
    (setting("format_options", {"colour": 1}), r"first: its source format cannot be had: .*no such setting of criteo"),
    (setting("unseen_buckets", 5), r"vocabularies.h5: has 0 unseen buckets instead of 5 as the manifest says"),
    (edit(lambda found: found.update(source_format="criteus")), r"first: its source format cannot be had: .*criteus"),
    (
        edit(lambda found: found.update(source_format="gone_formats:Gone")),
        r"first: its source format cannot be had: .*there is no module gone_formats; set PYTHONPATH",
    ),
    (edit(lambda found: found.update(dense_features=12)), r"criteo now has the dense features 13 instead of 12"),
    (
        edit(lambda found: found["tables"][3].update(name="other")),
        r"criteo now has the tables .*; restore the one that they were prepared with, or run bagpipe prepare again",
    ),
    (without("vocabularies"), r"first: has no file of vocabularies, as of an older program"),
    (lambda first: (first / "vocabularies.h5").unlink(), r"vocabularies.h5: the file of vocabularies is missing"),
    (cut("vocabularies.h5"), r"vocabularies.h5: it has \d+ bytes instead of \d+; it was cut off or replaced"),
    (flip("vocabularies.h5"), r"vocabularies.h5: its SHA-256 is not the manifest's; it is damaged"),
    (
        rewrite("vocabularies", replaced("values/C1", [1, 2])),
        r"C1 has 2 values instead of \d+",
    ),
    (
        rewrite("vocabularies", lambda file: replaced("values/C1", file["values/C1"][:].astype(np.int64))(file)),
        r"table C1 holds int64 values, and those of criteo are hex",
    ),
    (rewrite("vocabularies", replaced("values/C1", [0.5])), r"vocabularies.h5: holds no values of table C1"),
    (
        rewrite("vocabularies", lambda file: replaced("values/C2", file["values/C2"][1:])(file)),
        r"vocabularies.h5: C2 has \d+ values instead of \d+ as the manifest says",
    ),
    (rewrite("vocabularies", lambda file: file.pop("values/C7")), r"vocabularies.h5: holds no values of table C7"),
    (rewrite("vocabularies", future), r"vocabularies.h5: has format .*99.* instead of 2; another version of bagpipe"),
    (rewrite("vocabularies", buckets), r"vocabularies.h5: C1 has \d+ values instead of \d+|has 2 unseen buckets"),
]

ONLY_GROW = [
    (
        without("waiting"),
        r"first: does not say which values are too rare for an id \(waiting\), as of an older",
    ),
    (lambda first: (first / "waiting.h5").unlink(), r"waiting.h5: the file of waiting values is missing"),
    (cut("waiting.h5"), r"waiting.h5: it has \d+ bytes instead of"),
    (flip("waiting.h5"), r"waiting.h5: its SHA-256 is not the manifest's"),
    (rewrite("waiting", lambda file: file.pop("values/C1")), r"waiting.h5: cannot be read .*values/C1|waiting.h5.*C1"),
    (rewrite("waiting", replaced("counts/C1", [1.5])), r"waiting.h5: counts/C1 holds no count for each value"),
    (
        rewrite("waiting", lambda file: replaced("values/C1", file["values/C1"][:].astype(np.int64))(file)),
        r"first: the waiting values of table C1 are int64 instead of uint32",
    ),
    (
        rewrite("vocabularies", lambda file: file.pop("counts/C1")),
        r"first: has no counts of ids, as of an older",
    ),
    (rewrite("vocabularies", replaced("counts/C1", [1, 2])), r"counts/C1 has 2 numbers instead of \d+ as the manifest"),
    (rewrite("vocabularies", lambda file: file.attrs.pop("train_rows")), r"train_rows = None is no number of rows"),
    (lambda first: (first / "train-00000.h5").unlink(), r"train-00000.h5: the shard is missing; copy it here again"),
    (cut("train-00000.h5", 3000), r"train-00000.h5: cannot be read .* it is damaged"),
]


@pytest.mark.parametrize("flag", ["--like", "--grow"])
@pytest.mark.parametrize(("damage", "problem"), FOLDERS)
def test_a_folder_that_cannot_be_gone_on_from(
    tmp_path: Path, sound: Path, capsys: pytest.CaptureFixture[str], flag: str, damage: Damage, problem: str
) -> None:
    refuse(tmp_path, sound, capsys, flag, damage, problem)


@pytest.mark.parametrize(("damage", "problem"), ONLY_GROW)
def test_a_folder_that_cannot_grow(
    tmp_path: Path, sound: Path, capsys: pytest.CaptureFixture[str], damage: Damage, problem: str
) -> None:
    refuse(tmp_path, sound, capsys, "--grow", damage, problem)


def refuse(
    folder: Path, sound: Path, capsys: pytest.CaptureFixture[str], flag: str, damage: Damage, problem: str
) -> None:
    shutil.copytree(sound, folder / "data")
    first, output = folder / "data" / "first", folder / "output"
    damage(first)
    before = contents(folder)
    command = ["prepare", "--input", str(folder / "data" / "day_1"), "--output", str(output), flag, str(first)]
    assert main([*command, "--backend", "reference"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bagpipe: error:")]
    assert len(said) == 1
    assert re.search(problem, said[0]), said
    assert not (output / "manifest.json").exists()
    assert {name: content for name, content in contents(folder).items() if "output" not in name} == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--like", "{0}/day_0"], r"day_0: no manifest.json here|day_0/manifest.json: .*not a directory"),
        (["--like", "{0}/absent"], r"absent: no manifest.json here"),
        (["--grow", "{0}/later"], r"later: was prepared with --like, .*name the directory that it was prepared like"),
        (["--grow", "{0}/first", "--evict-unused", "0"], r"--evict-unused: 0: use 1 or more"),
        (["--grow", "{0}/first", "--evict-unused", "many"], r"--evict-unused: 'many': use a whole number"),
        (["--grow", "{0}/first", "--evict-unused", "9" * 30], r"--evict-unused: 9+: use 9223372036854775807 or less"),
        (["--like", "{0}/first", "--evict-unused", "9"], r"evict-unused = 9: use it with --grow DIR"),
        (["--evict-unused", "9"], r"evict-unused = 9: use it with --grow DIR"),
        (["--like", "{0}/first", "--grow", "{0}/first"], r"--grow: not allowed with argument --like"),
        (["--grow", "{0}/first", "--min-count", "5"], r"min-count = 5: .*first was prepared with 3"),
        (["--grow", "{0}/first", "--max-rows-per-table", "9"], r"max-rows-per-table = 9: .* with min-count = 3"),
        (["--grow", "{0}/first", "--unseen-buckets", "1"], r"unseen-buckets = 1: .* was prepared with 0"),
        (["--unseen-buckets", "-1"], r"--unseen-buckets: -1: use 0 or more"),
        (["--unseen-buckets", "8", "--max-rows-per-table", "9"], r"unseen-buckets = 8: use less than 8"),
        (["--unseen-buckets", "9" * 18], r"unseen-buckets = 9+: use 0 to 2 \*\* 31 - 1"),
        (["--unseen-buckets", "9" * 30], r"--unseen-buckets: 9+: use 9223372036854775807 or less"),
        (["--grow", "{0}/first", "--test-fraction", "0.999"], r"40 good rows leave none to train on"),
        (["--like", "{0}/first", "--output", "{0}/first"], r"--output .*first: these are the earlier rows"),
        (["--grow", "{0}/first", "--output", "{0}/first"], r"--output .*first: these are the earlier rows"),
        (["--grow", "{0}/first", "--output", "{0}/later"], r"later: holds the finished preparation with grow = None"),
        (
            ["--like", "{0}/first", "--output", "{0}/grown"],
            r"grown: holds the finished preparation with grow = ",
        ),
        (["--like", "{0}/first", "--input", "{0}/gone"], r"gone: no such input file"),
        (["--like", "{0}/first", "--input", "{0}/first/manifest.json"], r"manifest.json:1: 1 tab-separated fields"),
    ],
)
def test_arguments_that_do_not_go_together(
    tmp_path: Path, sound: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    before = contents(sound)
    given = [argument.format(sound) for argument in arguments]
    inputs = [] if "--input" in given else ["--input", str(sound / "day_1")]
    output = [] if "--output" in given else ["--output", str(tmp_path / "out")]
    try:
        code = main(["prepare", *inputs, *output, *given, "--backend", "reference"])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert re.search(problem, capsys.readouterr().err)
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert contents(sound) == before
