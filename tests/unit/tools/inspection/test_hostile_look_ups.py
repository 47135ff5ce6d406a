"""What can be wrong with `inspect --look-ups`: one clear message each, and nothing is lost or half written."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.cli.commands import main
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows
from tests.ragged_shards import write_ragged
from tests.unit.checkpoint_samples import write_checkpoint
from tests.unit.data_prep.plain_preparation import silent, write_text

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of clicks and of histories, an empty preparation, and a checkpoint."""
    folder = tmp_path_factory.mktemp("sound")
    source = write_text(folder / "day", random_rows(40, seed=1))
    prepare_clicks([source], folder / "clicks", PrepareSettings(compression="none"), silent)
    write_ragged(folder / "visits", samples=60)
    write_ragged(folder / "none", samples=0, test_samples=0)
    write_checkpoint(folder, np.zeros((8, 5), np.float32), (5, 3))
    return folder


def change(file: str, dataset: str, place: int, value: int) -> Damage:
    def damage(folder: Path) -> None:
        with h5py.File(folder / file, "r+") as shard:
            shard[dataset][place] = value
        manifest = json.loads((folder / file).with_name("manifest.json").read_text())
        manifest["shards"]["train"][0]["bytes"] = (folder / file).stat().st_size
        (folder / file).with_name("manifest.json").write_text(json.dumps(manifest))

    return damage


def unfinished(folder: Path) -> None:
    (folder / "clicks/manifest.json").rename(folder / "clicks/preparation.json")


def another_row_count(folder: Path) -> None:
    manifest = json.loads((folder / "clicks/manifest.json").read_text())
    manifest["rows"]["train"] += 1
    (folder / "clicks/manifest.json").write_text(json.dumps(manifest))


def cut(file: str, to: int = -1) -> Damage:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:to])


def remove(file: str) -> Damage:
    return lambda folder: (folder / file).unlink()


def nothing(_: Path) -> None:
    """The folder stays as it is."""


@pytest.mark.parametrize(
    ("damage", "path", "options", "code", "problem"),
    [
        (nothing, "absent", [], 2, r"absent: no manifest.json here; name a folder that bagpipe prepare has written"),
        (nothing, "day", [], 2, r"day: no manifest.json here|day/manifest.json: cannot be read"),
        (nothing, "clicks/train-00000.h5", [], 2, r"train-00000.h5.*: (no manifest.json here|cannot be read)"),
        (nothing, ".", [], 2, r"no manifest.json here"),
        (nothing, "none", [], 2, r"none: has no samples to measure"),
        (nothing, "CHECKPOINT", [], 2, r"is a checkpoint; --look-ups are those of a shard directory"),
        (unfinished, "clicks", [], 2, r"clicks: the preparation is not finished"),
        (cut("clicks/manifest.json", 50), "clicks", [], 2, r"manifest.json: is no JSON"),
        (another_row_count, "clicks", [], 2, r"rows.train is 37, not the sum of its shards' rows, 36"),
        (remove("clicks/train-00000.h5"), "clicks", [], 1, r"train-00000.h5: the shard is missing"),
        (cut("clicks/train-00000.h5"), "clicks", [], 1, r"train-00000.h5: it has \d+ bytes instead of"),
        (remove("clicks/vocabularies.h5"), "clicks", [], 1, r"vocabularies.h5: the file of vocabularies is missing"),
        (remove("clicks/waiting.h5"), "clicks", [], 1, r"waiting.h5: the file of waiting values is missing"),
        (cut("clicks/waiting.h5"), "clicks", [], 1, r"waiting.h5: it has \d+ bytes instead of"),
        (change("clicks/train-00000.h5", "sparse", 3, 99), "clicks", [], 2, r"an id of table C1 is 99, outside 0 \.\."),
        (change("clicks/train-00000.h5", "sparse", 3, -1), "clicks", [], 2, r"an id of table C1 is -1, outside 0 \.\."),
        (
            change("visits/train-00000.h5", "ragged/history/offsets", 5, 10**9),
            "visits",
            [],
            2,
            r"train-00000.h5: .*history",
        ),
        (change("visits/train-00000.h5", "ragged/history/values", 0, 40), "visits", [], 2, r"id of table item is 40"),
        (nothing, "clicks", ["--batch-size", "0"], 2, r"--batch-size: 0: use 1 or more"),
        (nothing, "clicks", ["--batch-size", "half"], 2, r"--batch-size: 'half': use a whole number"),
        (nothing, "clicks", ["--plot", "{0}/plot.png"], 2, r"plot.png': is drawn as SVG; use a name that ends in .svg"),
        (nothing, "clicks", ["--plot", "{0}/gone/a.svg"], 2, r"a.svg': its folder does not exist or cannot be written"),
        (nothing, "clicks", ["--json", "{0}/day"], 2, r"day': is there already; remove it, or use another name"),
        (nothing, "clicks", ["--json", "{0}/clicks"], 2, r"clicks': is there already; remove it, or use another name"),
        (nothing, "clicks", ["--json", "{0}/day/found.json"], 2, r"found.json': its folder does not exist or cannot"),
        (nothing, "clicks", ["--plot", "{0}/a.svg", "--json", "{0}/a.svg"], 2, r"is the file of --json as well"),
    ],
)
def test_look_ups_that_cannot_be_measured(
    tmp_path: Path,
    sound: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Damage,
    path: str,
    options: list[str],
    code: int,
    problem: str,
) -> None:
    folder = shutil.copytree(sound, tmp_path / "data")
    damage(folder)
    if path == "CHECKPOINT":
        path = str(next(folder.rglob("step-*")).relative_to(folder))
    before = {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    try:
        found = main(["inspect", str(folder / path), "--look-ups", *(option.format(folder) for option in options)])
    except SystemExit as ended:
        found = int(str(ended.code))
    said = [line for line in capsys.readouterr().err.splitlines() if "bagpipe" in line.split(":")[0]]
    assert found == code
    assert len([line for line in said if "usage" not in line]) == 1
    assert re.search(problem, said[-1]), said
    assert {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_a_batch_larger_than_all_samples_is_one_batch(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sound / "clicks"), "--batch-size", "9" * 15]) == 0
    assert re.search(r"in 1 batch\nfirst use of the row +100.00%", capsys.readouterr().out)
