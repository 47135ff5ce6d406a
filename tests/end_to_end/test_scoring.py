"""A checkpoint in use: `bagpipe evaluate` and `predict` find what training measured, for any number of ranks."""

import json
import re
from dataclasses import dataclass
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
from tests.end_to_end.test_feature_equality import CONFIG, DLRM, LINEAR, SEVERAL_WIDTHS
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
CENTRAL = ("sums, of weighted ids too", SEVERAL_WIDTHS, "dlrm", "dcn")
SETS = {"central": CENTRAL, "further": tuple(case for case in CASES if case not in CENTRAL)}
"""Cases that are trained and scored together."""
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


@dataclass(frozen=True)
class Trained:
    """A folder with runs of some cases.

    Attributes:
        folder: with `run-N` of each case, trained in one process, and `alone.jsonl`, which evaluates them there. Of
            each kind of raw rows there is a `run-KIND`, and `KIND.parquet`, which predicts its test rows.
        cases: their names.
    """

    folder: Path
    cases: tuple[str, ...]

    @property
    def runs(self) -> list[Path]:
        """The runs of the cases."""
        return [self.folder / f"run-{number}" for number in range(len(self.cases))]


def run_commands(run_ranks: RunRanks, ranks: int, commands: list[list[Any]], folder: Path) -> list[str]:
    """Run `bagpipe` with each list of arguments, behind the exit code that it must have; what each says on stderr."""
    path = folder / f"commands-{ranks}.json"
    path.write_text(json.dumps([[code, *map(str, arguments)] for code, *arguments in commands]))
    finished = run_ranks(ranks, *forked_rank(DRIVER), path, timeout_s=400)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stderr.split(END_OF_COMMAND)[:-1]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measures(event: dict[str, Any]) -> dict[str, Any]:
    """What is measured, of each label."""
    return {name: event[name] for name in MEASURES} | {"further_labels": event.get("further_labels")}


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


@pytest.fixture(scope="module", params=["central", pytest.param("further", marks=pytest.mark.slow)])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    from tests.ranks import run_ranks

    found = Trained(tmp_path_factory.mktemp("scoring"), SETS[request.param])
    folder = found.folder
    (folder / "tiny.toml").write_text(CONFIG)
    commands: list[list[Any]] = []

    def train(name: object, own: list[str], slices: int) -> None:
        data, output = f"data.path={folder / f'shards-{name}'}", f"train.output={folder / f'run-{name}'}"
        commands.append([0, "train", folder / "tiny.toml", data, output, *own, f"train.reference_slices={slices}"])

    for number, case in enumerate(found.cases):
        shards, settings = CASES[case]
        write_ragged(folder / f"shards-{number}", seed=number, samples=90, test_samples=64, **shards)
        train(number, [*settings, *SETTINGS.get(case, [])], slices=1 + number % 3)
    commands += [[0, "evaluate", run, "--save", folder / "alone.jsonl"] for run in found.runs]
    for kind, (*_, settings) in RAW.items():
        write_raw(folder, kind)
        train(kind, settings, slices=2)
        output = folder / f"{kind}.parquet"
        given = ["--input", folder / f"{kind}-later.tsv", "--output", output, "--logits"]
        commands.append([0, "predict", folder / f"run-{kind}", *given])
    run_commands(run_ranks, 1, commands, folder)
    return found


def test_one_process_measures_what_training_did(trained: Trained) -> None:
    found = lines(trained.folder / "alone.jsonl")
    assert [measures(line) for line in found] == [told_by_training(run) for run in trained.runs]
    assert [line["trainers"] for line in found] == [1] * len(trained.cases)
    assert len({line["auc"] for line in found}) > len(trained.cases) / 2  # they are of different models


def plain_auc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """The share of pairs of a click and another row that are in order; half of those that are alike."""
    clicks, others = scores[labels == 1], scores[labels == 0]
    twice = 2 * (clicks[:, None] > others).sum() + (clicks[:, None] == others).sum()
    return float(twice / (2 * clicks.size * others.size))


@pytest.mark.parametrize("kind", RAW)
def test_predictions_have_the_auc_of_training(kind: str, trained: Trained) -> None:
    """Of each label; the first one's measures stand apart in the metrics."""
    table = pa_parquet.read_table(trained.folder / f"{kind}.parquet")
    labels = np.load(trained.folder / f"{kind}-labels.npy")
    told = told_by_training(trained.folder / f"run-{kind}")
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
        pytest.param(4, ["roles.servers=1", "tables.placement=by_table"], id="two trainers", marks=pytest.mark.slow),
        pytest.param(5, ["roles.servers=1"], id="three trainers", marks=pytest.mark.slow),
    ],
)
def test_any_number_of_trainers_finds_what_training_did(
    ranks: int, settings: list[str], trained: Trained, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Whether they share batches as then, or take the slices of then one by one. Nothing else is written."""
    folder = trained.folder
    before = sorted(folder.rglob("*"))
    save, logs = tmp_path / "found.jsonl", tmp_path / "logs"
    commands = [[0, "evaluate", run, *settings, "--save", save] for run in trained.runs]
    commands[0] += ["--logs", logs]
    for kind in RAW:
        output = tmp_path / f"{kind}.csv"
        given = ["--input", folder / f"{kind}-bare.tsv", "--output", output, "--logits"]
        commands.append([0, "predict", folder / f"run-{kind}", *given, *settings])
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text((folder / "criteo-bare.tsv").read_text() + "many\tfields\n")
    given = [2, "predict", folder / "run-criteo", *settings]
    commands.append([*given, "--input", folder / "criteo-bare.tsv", "--output", tmp_path / "criteo.csv"])
    commands.append([*given, "--input", wrong, "--output", tmp_path / "wrong.csv"])
    commands.append([2, "evaluate", folder / "run-criteo", *settings, "--data", folder / "shards-0"])
    said = run_commands(run_ranks, ranks, commands, tmp_path)
    reasons = (r"criteo\.csv: is there already", rf"wrong\.tsv:{LATER + 1}: ", "was trained with other ids")
    for text, reason in zip(said[-3:], reasons, strict=True):
        (error,) = [line for line in text.splitlines() if "error: " in line]
        assert re.search(reason, error)
    by_hotline = sum("policy.name=hotline" in CASES[case][1] for case in trained.cases)  # has the same bits here
    of_hotline = "that of policy.name = 'hotline' with 1 trainer -> another (the last bits may differ)"
    doubts = re.findall("computed with another (.*)", "".join(said))
    assert doubts == [f"way of sharing samples out: {of_hotline}"] * (by_hotline if ranks > 3 else 0)
    told = [told_by_training(run) for run in trained.runs]
    assert [measures(line) for line in lines(save)] == told
    for kind in RAW:
        alone, found = pa_parquet.read_table(folder / f"{kind}.parquet"), pa_csv.read_csv(tmp_path / f"{kind}.csv")
        assert alone.equals(pa.table(found.columns, names=found.column_names).cast(alone.schema))
    assert sorted(folder.rglob("*")) == before
    assert {path.name for path in tmp_path.iterdir()} == {
        *("found.jsonl", "logs", "wrong.tsv", f"commands-{ranks}.json"),
        *(f"{kind}.csv" for kind in RAW),
    }
    assert (logs / "logs" / "oracle-0.log").is_file()
    assert (logs / "resources.json").is_file()
