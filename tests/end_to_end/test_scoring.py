"""A checkpoint in use: `bagpipe evaluate` and `predict` find what training measured, for any number of ranks."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.click_evaluation import measure
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.end_to_end.many_commands import END_OF_COMMAND
from tests.end_to_end.test_equality import RunRanks
from tests.end_to_end.test_feature_equality import CASES as FEATURES
from tests.end_to_end.test_feature_equality import CONFIG, DLRM, LINEAR
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
    if model in ("dlrm", "dcn", "din")
}
"""torch's products of matrices depend, in the last bit of a row, on how many rows there are."""
CASES = {**FEATURES, **MODELS}
SETTINGS = {
    "sums, of weighted ids too": ["train.exact_auc_samples=30"],
    "dlrm": ["train.auc_group=user"],
    "dcn": ["train.checkpoint_every_steps=2", "train.max_steps=3", "train.evaluate_every_steps=2"],
}
"""An AUC from a histogram; one by group; a checkpoint in the midst of an epoch."""
RAW: dict[str, tuple[str, int, list[str]]] = {
    "criteo": ("\t", 1, [*DLRM, "train.batch_size=70"]),
    "sequences": (",", 2, ["model.name=wide_deep", "model.deep_mlp=[8]", f"kernels.linear={LINEAR}"]),
}
"""Kinds of raw rows: what separates fields, how many labels are in front of each, and settings of a run."""
ROWS, LATER = 600, 151


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


def numbers() -> range:
    return range(len(CASES))


def told_by_training(output: Path) -> dict[str, Any]:
    """The last evaluation of a run: that of its newest checkpoint."""
    return measures([event for event in lines(output / "metrics.jsonl") if event["event"] == "evaluation"][-1])


def write_raw(folder: Path, kind: str) -> None:
    """Rows to train on, prepared with the next ones as test rows; the next ones alone, with labels and without."""
    separator, labels, _ = RAW[kind]
    generate_clicks(ROWS + LATER, folder / f"{kind}.tsv", seed=5, kind=kind)
    settings = PrepareSettings(source_format=kind, test_fraction=LATER / (ROWS + LATER), rows_per_shard=200)
    prepare_clicks([str(folder / f"{kind}.tsv")], folder / f"shards-{kind}", settings, lambda _: None)
    rows = (folder / f"{kind}.tsv").read_text().splitlines()
    header, later = rows[:-LATER][: kind == "sequences"], rows[-LATER:]
    (folder / f"{kind}-later.tsv").write_text("\n".join([*header, *later]) + "\n")
    bare = [row.split(separator, labels)[labels] for row in [*header, *later]]
    (folder / f"{kind}-bare.tsv").write_text("\n".join(bare) + "\n")
    np.save(folder / f"{kind}-labels.npy", [[int(label) for label in row.split(separator)[:labels]] for row in later])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run-N` of each case, trained in one process, and `alone.jsonl`, which evaluates them there.

    Of each kind of raw rows there is a `run-KIND`, and `KIND.parquet`, which predicts its test rows.
    """
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("scoring")
    (folder / "tiny.toml").write_text(CONFIG)
    commands: list[list[Any]] = []

    def train(name: object, own: list[str]) -> None:
        data, output = f"data.path={folder / f'shards-{name}'}", f"train.output={folder / f'run-{name}'}"
        commands.append([0, "train", folder / "tiny.toml", data, output, *own])

    for number, (case, (shards, settings)) in enumerate(CASES.items()):
        write_ragged(folder / f"shards-{number}", seed=number, samples=90, test_samples=64, **shards)
        train(number, [*settings, *SETTINGS.get(case, []), f"train.reference_slices={trained_by(case)}"])
    commands += [[0, "evaluate", folder / f"run-{number}", "--save", folder / "alone.jsonl"] for number in numbers()]
    for kind, (*_, settings) in RAW.items():
        write_raw(folder, kind)
        train(kind, [*settings, "train.reference_slices=2"])
        output = folder / f"{kind}.parquet"
        given = ["--input", folder / f"{kind}-later.tsv", "--output", output, "--logits"]
        commands.append([0, "predict", folder / f"run-{kind}", *given])
    run_commands(run_ranks, 1, commands, folder)
    return folder


def test_one_process_measures_what_training_did(trained: Path) -> None:
    found = lines(trained / "alone.jsonl")
    assert [measures(line) for line in found] == [told_by_training(trained / f"run-{number}") for number in numbers()]
    assert [line["trainers"] for line in found] == [1] * len(CASES)
    assert len({line["auc"] for line in found}) > len(CASES) / 2  # they are of different models


def plain_auc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """The share of pairs of a click and another row that are in order; half of those that are alike."""
    clicks, others = scores[labels == 1], scores[labels == 0]
    twice = 2 * (clicks[:, None] > others).sum() + (clicks[:, None] == others).sum()
    return float(twice / (2 * clicks.size * others.size))


@pytest.mark.parametrize("kind", RAW)
def test_predictions_have_the_auc_of_training(kind: str, trained: Path) -> None:
    """Of each label; the first one's measures stand apart in the metrics."""
    table, labels = pa_parquet.read_table(trained / f"{kind}.parquet"), np.load(trained / f"{kind}-labels.npy")
    told = told_by_training(trained / f"run-{kind}")
    by_label = [told, *(told["further_labels"] or {}).values()]
    assert table.num_columns == 2 * len(by_label) == 2 * labels.shape[1]
    for number, measured in enumerate(by_label):
        probability = table.column(number).to_numpy()
        logit = table.column(len(by_label) + number).to_numpy()
        assert plain_auc(labels[:, number], probability) == measured["auc"]
        assert measure(labels[:, number], logit).auc == measured["auc"]
        if kind == "criteo":  # whose rows have no weights
            assert measure(labels[:, number], logit).log_loss == measured["log_loss"]
            assert probability.mean() / labels[:, number].mean() == pytest.approx(measured["calibration"], rel=1e-12)


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        pytest.param(
            3,
            ["lookahead.batches=3", "lookahead.group=2", "debug.verify_rows=true"],
            id="one trainer",
            marks=pytest.mark.slow,
        ),
        pytest.param(4, ["roles.servers=1", "tables.placement=by_table"], id="two trainers"),
        pytest.param(5, ["roles.servers=1"], id="three trainers", marks=pytest.mark.slow),
    ],
)
def test_any_number_of_trainers_finds_what_training_did(
    ranks: int, settings: list[str], trained: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Whether they share batches as then, or take the slices of then one by one. Nothing else is written."""
    before = sorted(trained.rglob("*"))
    save, logs = tmp_path / "found.jsonl", tmp_path / "logs"
    commands = [[0, "evaluate", trained / f"run-{number}", *settings, "--save", save] for number in numbers()]
    commands[0] += ["--logs", logs]
    for kind in RAW:
        output = tmp_path / f"{kind}.csv"
        given = ["--input", trained / f"{kind}-bare.tsv", "--output", output, "--logits"]
        commands.append([0, "predict", trained / f"run-{kind}", *given, *settings])
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text((trained / "criteo-bare.tsv").read_text() + "many\tfields\n")
    given = [2, "predict", trained / "run-criteo", *settings]
    commands.append([*given, "--input", trained / "criteo-bare.tsv", "--output", tmp_path / "criteo.csv"])
    commands.append([*given, "--input", wrong, "--output", tmp_path / "wrong.csv"])
    commands.append([2, "evaluate", trained / "run-criteo", *settings, "--data", trained / "shards-0"])
    said = run_commands(run_ranks, ranks, commands, tmp_path)
    reasons = (r"criteo\.csv: is there already", rf"wrong\.tsv:{LATER + 1}: ", "was trained with other ids")
    for text, reason in zip(said[-3:], reasons, strict=True):
        (error,) = [line for line in text.splitlines() if "error: " in line]
        assert re.search(reason, error)
    assert not [text for text in said if "computed with another" in text]
    told = [told_by_training(trained / f"run-{number}") for number in numbers()]
    assert [measures(line) for line in lines(save)] == told
    for kind in RAW:
        alone, found = pa_parquet.read_table(trained / f"{kind}.parquet"), pa_csv.read_csv(tmp_path / f"{kind}.csv")
        assert alone.equals(pa.table(found.columns, names=found.column_names).cast(alone.schema))
    assert sorted(trained.rglob("*")) == before
    assert {path.name for path in tmp_path.iterdir()} == {
        *("found.jsonl", "logs", "wrong.tsv", f"commands-{ranks}.json"),
        *(f"{kind}.csv" for kind in RAW),
    }
    assert (logs / "logs" / "oracle-0.log").is_file()
    assert (logs / "resources.json").is_file()
