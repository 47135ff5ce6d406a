"""Whole runs on a GPU: oracle, server and one trainer on three ranks, against the reference on the CPU."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.tools.compare import compare
from data_prep.generate import generate_clicks
from data_prep.prepare import PrepareSettings, prepare_clicks

pytestmark = pytest.mark.gpu

RunRanks = Callable[..., CompletedProcess[str]]

CONFIG = """
[data]
path = "{shards}"
block_rows = 256
[model]
embedding_dim = 16
bottom_mlp = [32]
top_mlp = [32]
[optimizer]
rows_lr = 0.05
dense = "SGD"
dense_lr = 0.05
[train]
batch_size = 70
epochs = 2
timeout_s = 60.0
[lookahead]
batches = 6
group = 2
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    generate_clicks(2023, folder / "clicks.tsv", seed=3)
    settings = PrepareSettings(rows_per_shard=700)
    prepare_clicks([str(folder / "clicks.tsv")], folder / "shards", settings, lambda _: None)
    path = folder / "tiny.toml"
    path.write_text(CONFIG.format(shards=folder / "shards"))
    return path


def train(run_ranks: RunRanks, ranks: int, config: Path, output: Path, *overrides: str) -> Path:
    """The output of one run."""
    finished = run_ranks(
        ranks, "bagpipe", "train", config, f"train.output={output}", "roles.servers=1", *overrides, timeout_s=240
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return output


def losses_of(output: Path) -> list[float]:
    records = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad", "adam"])
def test_a_gpu_trains_as_the_cpu_does(optimizer: str, config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Within rounding: matrices are multiplied in another order. Every read of a row is checked against its version."""
    rows = f"optimizer.rows={optimizer}"
    settings = (rows, *(["optimizer.rows_eps=1e-3"] if optimizer != "sgd" else []))
    reference = train(run_ranks, 1, config, tmp_path / "cpu", *settings, "train.device=cpu")
    found = train(run_ranks, 3, config, tmp_path / "gpu", *settings, "train.device=cuda", "debug.verify_rows=true")
    assert compare(reference, found).largest() <= 1e-4
    losses = [losses_of(output) for output in (reference, found)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_deterministic_runs_on_a_gpu_have_the_same_bits(config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    settings = ("train.device=cuda", "train.deterministic=true")
    outputs = [train(run_ranks, 3, config, tmp_path / name, *settings) for name in ("first", "second")]
    assert compare(*outputs).largest() == 0.0
