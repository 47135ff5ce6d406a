"""`bagpipe evaluate` measures what training measured, to the last digit, for any number of ranks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.many_commands import END_OF_COMMAND
from tests.end_to_end.test_equality import RunRanks
from tests.end_to_end.test_feature_equality import CASES as FEATURES
from tests.end_to_end.test_feature_equality import CONFIG
from tests.end_to_end.test_models import OWN_SETTINGS
from tests.fork_server import forked_rank
from tests.ragged_shards import write_ragged

DRIVER = "tests.end_to_end.many_commands"
MEASURES = ("samples", "auc", "auc_error", "log_loss", "normalised_entropy", "calibration", "group_auc")
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    model: (
        {"labels": ("click", "sale"), "weighted_samples": True},
        [f"model.name={model}", *own, "kernels.linear=torch", "optimizer.rows=adam"],
    )
    for model, own in OWN_SETTINGS.items()
}
"""torch's products of matrices depend, in the last bit of a row, on how many rows there are."""
CASES = {**FEATURES, **MODELS}
SETTINGS = {
    "sums, of weighted ids too": ["train.exact_auc_samples=30"],
    "dlrm": ["train.auc_group=user"],
    "dcn": ["train.checkpoint_every_steps=2", "train.max_steps=3", "train.evaluate_every_steps=2"],
}
"""An AUC from a histogram; one by group; a checkpoint in the midst of an epoch."""


def trained_by(case: str) -> int:
    """Slices of each case, as of so many trainers."""
    return 1 + list(CASES).index(case) % 3


def run_commands(run_ranks: RunRanks, ranks: int, commands: list[list[Any]], folder: Path) -> list[str]:
    """Run `bagpipe` with each list of arguments, behind the exit code that it must have; what each says on stderr."""
    path = folder / f"commands-{ranks}.json"
    path.write_text(json.dumps([[code, *map(str, arguments)] for code, *arguments in commands]))
    finished = run_ranks(ranks, *forked_rank(DRIVER), path, timeout_s=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stderr.split(END_OF_COMMAND)[:-1]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measures(event: dict[str, Any]) -> dict[str, Any]:
    """What is measured, of each label."""
    return {name: event[name] for name in MEASURES} | {"further_labels": event.get("further_labels")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run-N` of each case, trained in one process, and `alone.jsonl`, which evaluates them there."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "tiny.toml").write_text(CONFIG)
    commands: list[list[Any]] = []
    for number, (case, (shards, settings)) in enumerate(CASES.items()):
        write_ragged(folder / f"shards-{number}", seed=number, samples=90, test_samples=64, **shards)
        data, output = f"data.path={folder / f'shards-{number}'}", f"train.output={folder / f'run-{number}'}"
        own = [*settings, *SETTINGS.get(case, []), f"train.reference_slices={trained_by(case)}"]
        commands.append([0, "train", folder / "tiny.toml", data, output, *own])
    commands += [[0, "evaluate", folder / f"run-{number}", "--save", folder / "alone.jsonl"] for number in numbers()]
    run_commands(run_ranks, 1, commands, folder)
    return folder


def numbers() -> range:
    return range(len(CASES))


def told_by_training(folder: Path) -> list[dict[str, Any]]:
    """The last evaluation of each run: that of its newest checkpoint."""
    events = [lines(folder / f"run-{number}" / "metrics.jsonl") for number in numbers()]
    return [measures([event for event in run if event["event"] == "evaluation"][-1]) for run in events]


def test_one_process_measures_what_training_did(trained: Path) -> None:
    found = lines(trained / "alone.jsonl")
    assert [measures(line) for line in found] == told_by_training(trained)
    assert [line["trainers"] for line in found] == [1] * len(CASES)
    aucs = {line["auc"] for line in found}
    assert len(aucs) > len(CASES) / 2  # they are of different models


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        pytest.param(3, ["lookahead.batches=3", "lookahead.group=2", "debug.verify_rows=true"], id="one trainer"),
        pytest.param(4, ["roles.servers=1", "tables.placement=by_table"], id="two trainers"),
        pytest.param(5, ["roles.servers=1"], id="three trainers", marks=pytest.mark.slow),
    ],
)
def test_any_number_of_trainers_measures_what_training_did(
    ranks: int, settings: list[str], trained: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Whether they share batches as then, or take the slices of then one by one. Nothing else is written."""
    before = sorted(trained.rglob("*"))
    save, logs = tmp_path / "found.jsonl", tmp_path / "logs"
    commands = [[0, "evaluate", trained / f"run-{number}", *settings, "--save", save] for number in numbers()]
    commands[0] += ["--logs", logs]
    run_commands(run_ranks, ranks, commands, tmp_path)
    assert [measures(line) for line in lines(save)] == told_by_training(trained)
    assert sorted(trained.rglob("*")) == before
    assert (logs / "logs" / "oracle-0.log").is_file()
    assert (logs / "resources.json").is_file()
