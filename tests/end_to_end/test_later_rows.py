"""Training goes on with the rows of a later day: the same bits on any ranks, also from the midst of that day."""

import json
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.vocabularies.id_uses import read_reborn
from bagpipe_hpc.tools.inspection.compare import compare
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.test_equality import PLAIN, overrides, story, train
from tests.end_to_end.test_resume import interrupted
from tests.ranks import run_ranks

DAY_STEPS, EVERY = 12, 11
WORLD = ("roles.servers=2", "lookahead.batches=5", "lookahead.group=2", "train.full_checkpoint_every=2")
DAYS: dict[str, dict[str, Any]] = {
    "the same vocabulary": {"like": True},
    "a vocabulary that has grown, and that values have left": {"grow": True, "evict_unused": 900},
}


class Days:
    """A day of training by the reference, and the rows of later days."""

    def __init__(self, folder: Path, config: Path, first: Path) -> None:
        self.config = config
        self.shards = {}
        for number, (day, kind) in enumerate(DAYS.items()):
            clicks = folder / f"clicks-{number}.tsv"
            generate_clicks(900, clicks, seed=5 + number)
            earlier = {name: first if value is True else value for name, value in kind.items()}
            settings = PrepareSettings(test_fraction=0.1, **earlier)
            self.shards[day] = folder / f"day-{number}"
            prepare_clicks([str(clicks)], self.shards[day], settings, lambda _: None)
        self.first = folder / "first"
        runs = [overrides("adam", self.first, PLAIN, "train.epochs=1")]
        self.references = {day: folder / f"reference-{number}" for number, day in enumerate(DAYS)}
        runs += [
            self.settings(day, output, PLAIN, "train.reference_slices=2") for day, output in self.references.items()
        ]
        train(run_ranks, 1, config, runs, folder)

    def settings(self, day: str, output: Path, *more: str, start: str = "") -> list[str]:
        """Those of a run on a later day that goes on after the first one."""
        begun = f"train.resume={start or self.first}", f"data.path={self.shards[day]}", "train.epochs=1"
        return overrides("adam", output, *begun, f"train.checkpoint_every_steps={EVERY}", *more)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory, config_path: Path, shards: Path) -> Days:
    return Days(tmp_path_factory.mktemp("days"), config_path, shards)


def test_steps_count_on_and_epochs_of_the_new_rows_begin(days: Days) -> None:
    then = load_checkpoint(days.first).manifest
    for output in days.references.values():
        found = load_checkpoint(output / "checkpoints" / f"step-{then.step + EVERY:08d}").manifest
        assert (found.data_step, found.epoch, found.epoch_step) == (then.step, 0, EVERY)
        end = load_checkpoint(output).manifest
        assert (end.step, end.epoch, end.epoch_step) == (then.step + DAY_STEPS, 1, 0)
        records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        (resumed,) = [record for record in records if record["event"] == "resumed"]
        assert any("later rows with" in change for change in resumed["changes"])


def test_tables_have_grown_and_ids_have_gone_to_other_values(days: Days) -> None:
    """So that the runs below have new rows of both kinds."""
    first = load_checkpoint(days.first).manifest.table_rows
    for day, shards in days.shards.items():
        manifest = load_manifest(shards)
        reborn = [len(read_reborn(shards, manifest, table.name)) for table in manifest.tables]
        assert (manifest.table_rows != first) == ("grow" in DAYS[day]), day
        assert any(reborn) == ("evict_unused" in DAYS[day]), day


@pytest.fixture(scope="module")
def distributed(days: Days, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of runs on two servers and two trainers."""
    folder = tmp_path_factory.mktemp("distributed")
    outputs = {day: folder / f"run-{number}" for number, day in enumerate(DAYS)}
    train(run_ranks, 5, days.config, [days.settings(day, out, *WORLD) for day, out in outputs.items()], folder)
    return outputs


def test_it_equals_the_reference(days: Days, distributed: dict[str, Path]) -> None:
    for day, output in distributed.items():
        assert compare(days.references[day], output).largest() == 0.0, day
        assert story(output) == story(days.references[day]), day


@pytest.mark.slow
def test_it_goes_on_from_the_midst_of_the_day(days: Days, distributed: dict[str, Path], tmp_path: Path) -> None:
    begun = load_checkpoint(days.first).manifest.step
    halves = {day: interrupted(output, tmp_path / f"half-{day}", begun + EVERY) for day, output in distributed.items()}
    goes_on = [days.settings(day, half, *WORLD, start="auto") for day, half in halves.items()]
    train(run_ranks, 5, days.config, goes_on, tmp_path)
    for day, half in halves.items():
        assert compare(days.references[day], half).largest() == 0.0, day
