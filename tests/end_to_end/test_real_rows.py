"""Real clicks, first to last: train on the first ones, prepare later ones like them, and find one AUC everywhere."""

import importlib.util
import lzma
from itertools import islice, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.click_evaluation import measure
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from tests.end_to_end.test_equality import LINEAR, RunRanks
from tests.end_to_end.test_scoring import MEASURES, lines, run_commands
from tests.real_clicks import SAMPLED_ROWS

TRAINED, LATER = 80_000, 20_000
BATCH, TRAINERS = 512, 2
CONFIG = f"""
[model]
embedding_dim = 16
[optimizer]
rows_lr = 0.02
[train]
batch_size = {BATCH}
[kernels]
linear = "{LINEAR}"
"""


def later_labels(folder: Path) -> NDArray[np.int64]:
    return np.asarray([int(line[0]) for line in (folder / "later.tsv").read_text().splitlines()])


def write_rows(folder: Path) -> None:
    """The rows to train on; the later ones, alone, without labels, and behind the first ones."""
    with lzma.open(SAMPLED_ROWS, "rt", encoding="utf-8") as file:
        rows = list(islice(file, TRAINED + LATER))
    assert len(rows) == TRAINED + LATER
    later = rows[TRAINED:]
    for name, chosen in (("first", rows[:TRAINED]), ("all", rows), ("later", later)):
        (folder / f"{name}.tsv").write_text("".join(chosen))
    (folder / "bare.tsv").write_text("".join(row.partition("\t")[2] for row in later))


def exported(folder: Path) -> ModuleType:
    """The loader of an exported model."""
    spec = importlib.util.spec_from_file_location("exported_model", folder / "load_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported_logits(model: Path, data: Path) -> NDArray[np.float32]:
    """What it computes for the test rows of prepared data, in the slices of the training."""
    manifest, loader, found = load_manifest(data), exported(model), []
    with ClickShards(data, manifest, "test") as shards:
        for first in range(0, shards.rows, BATCH):
            samples = min(BATCH, shards.rows - first)
            bounds = slice_bounds(samples, TRAINERS)
            for begin, end in pairwise(bounds):
                dense = shards.read_dense(first + begin, first + end)
                ids = shards.read_sparse(first + begin, first + end)
                columns = {feature.name: ids[:, number] for number, feature in enumerate(manifest.features)}
                found.append(loader.logits(dense, columns).detach().numpy())
    return np.concatenate(found)


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLED_ROWS.is_file(), reason="the real clicks are not at hand")
def test_later_rows_have_one_auc_in_training_evaluate_predict_and_export(run_ranks: RunRanks, tmp_path: Path) -> None:
    """To the last digit, with one, two and three trainers; the later rows of training are prepared with the first."""
    write_rows(tmp_path)
    (tmp_path / "run.toml").write_text(CONFIG)
    run, save = tmp_path / "run", tmp_path / "found.jsonl"

    def rows(name: str) -> Path:
        return tmp_path / f"{name}.tsv"

    def predict(output: str, source: str) -> list[Any]:
        return [0, "predict", run, "--data", tmp_path / "first", "--input", rows(source), "--output", tmp_path / output]

    share = str(LATER / (TRAINED + LATER))
    prepared = [
        [0, "prepare", "--input", rows("all"), "--output", tmp_path / "all", "--test-fraction", share],
        [0, "prepare", "--input", rows("first"), "--output", tmp_path / "first", "--test-fraction", "0"],
        [0, "prepare", "--input", rows("later"), "--output", tmp_path / "later", "--like", tmp_path / "first"],
    ]
    evaluate = [0, "evaluate", run, "--data", tmp_path / "later", "--save", save]
    train = [0, "train", tmp_path / "run.toml", f"data.path={tmp_path / 'all'}", f"train.output={run}"]
    alone = [evaluate, [0, "export", run, "--to", tmp_path / "model"], [*predict("alone.parquet", "bare"), "--logits"]]
    run_commands(run_ranks, 1, prepared, tmp_path)
    run_commands(run_ranks, 4, [[*train, "roles.servers=1"], evaluate, predict("two.csv", "later")], tmp_path)
    run_commands(run_ranks, 1, alone, tmp_path)
    run_commands(run_ranks, 3, [evaluate], tmp_path)
    run_commands(run_ranks, 5, [[*evaluate, "roles.servers=1"], [*predict("three.tsv", "bare")]], tmp_path)

    (told,) = [event for event in lines(run / "metrics.jsonl") if event["event"] == "evaluation"]
    assert told["samples"] == LATER
    assert 0.7 < told["auc"] < 0.8
    found = lines(save)
    assert [line["trainers"] for line in found] == [2, 1, 1, 3]
    for line in found:
        assert {name: line[name] for name in MEASURES} == {name: told[name] for name in MEASURES}

    labels = later_labels(tmp_path)
    table = pa_parquet.read_table(tmp_path / "alone.parquet")
    logits = table["logit"].to_numpy()
    for name, delimiter in (("two.csv", ","), ("three.tsv", "\t")):
        other = pa_csv.read_csv(tmp_path / name, parse_options=pa_csv.ParseOptions(delimiter=delimiter))
        assert other["probability"].combine_chunks().equals(table["probability"].combine_chunks())
    assert measure(labels, logits).auc == told["auc"]
    assert ranked_auc(labels, table["probability"].to_numpy()) == told["auc"]
    assert np.array_equal(exported_logits(tmp_path / "model", tmp_path / "later"), logits)


def ranked_auc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """By the sum of the clicks' ranks, those of equal scores averaged; in whole numbers (Mann and Whitney, 1947)."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    twice_rank = 2 * ends - counts + 1
    clicks = int(labels.sum())
    twice_right = int(twice_rank[places[labels == 1]].sum()) - clicks * (clicks + 1)
    return twice_right / (2 * clicks * (labels.size - clicks))
