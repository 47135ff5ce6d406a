"""Whole runs whose trainers compute on a GPU: with the bits of the reference there, and close to one on the CPU."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

from bagpipe_hpc.models.sums.contract import has_horovod
from bagpipe_hpc.tools.inspection.compare import compare
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
bottom_mlp = [64, 32]
top_mlp = [64, 32]
[optimizer]
rows_lr = 0.05
dense = "Adam"
dense_lr = 0.01
[train]
batch_size = 70  # the last of 27 batches has one sample, so most slices are empty
epochs = 2
timeout_s = 60.0
device = "cuda"
deterministic = true
[lookahead]
batches = 6
group = 2
"""

EXACT = {
    "sgd": [],
    "momentum": ["optimizer.rows_nesterov=true"],
    "rowwise_adagrad": [],
    "adagrad": ["optimizer.rows_clip_norm=0.004", "train.row_sums=bfloat16"],
    "adam": ["optimizer.rows_weight_decay=1e-3", "train.row_sums=float16"],
    "rowwise_adam": ["lookahead.batches=200"],
    "ftrl": ["lookahead.batches=1", "lookahead.group=0"],
}
"""Optimizers of rows, with further settings."""

SHARED = [
    (2, "home", "mpi", ["optimizer.rows=rowwise_adagrad"]),
    (2, "home", "horovod", ["optimizer.rows=adam", "train.row_sums=float16"]),
    (2, "replicated", "mpi", ["optimizer.rows=adagrad", "lookahead.batches=200"]),
    (2, "replicated", "horovod", ["optimizer.rows=sgd", "lookahead.batches=1", "lookahead.group=0"]),
    (3, "home", "horovod", ["optimizer.rows=ftrl", "train.row_sums=bfloat16"]),
    (4, "home", "grid", ["optimizer.rows=adam", "cache.exchange=grid"]),
    (4, "replicated", "mpi", ["optimizer.rows=momentum"]),
]
"""Trainers, where rows live, what sums dense gradients, and further settings."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    generate_clicks(2023, folder / "clicks.tsv", seed=3)
    settings = PrepareSettings(rows_per_shard=700)
    prepare_clicks([str(folder / "clicks.tsv")], folder / "shards", settings, lambda _: None)
    path = folder / "tiny.toml"
    path.write_text(CONFIG.format(shards=folder / "shards"))
    return path


@pytest.fixture(scope="module")
def wide_config(config: Path) -> Path:
    """The same samples and a model of rows of two widths."""
    path = config.with_name("wide.toml")
    path.write_text(config.read_text().replace("bottom_mlp = [64, 32]\ntop_mlp", 'name = "wide_deep"\ndeep_mlp'))
    return path


def train(run_ranks: RunRanks, ranks: int, config: Path, output: Path, *overrides: str) -> Path:
    """The output of one run; all trainers compute on the first GPU, unless the overrides say otherwise."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    on_one_gpu = (sys.executable, "-m", "tests.gpu.shared_gpu", uuid)
    settings = ("roles.servers=1", f"train.output={output}", *overrides)
    command = (*on_one_gpu, "bagpipe", "train", config, *settings)
    finished = run_ranks(ranks, *command, timeout_s=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return output


def rows(optimizer: str) -> list[str]:
    """Settings of a run with an optimizer of rows."""
    return [f"optimizer.rows={optimizer}", *EXACT[optimizer]]


def losses_of(output: Path) -> list[float]:
    records = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


@pytest.mark.parametrize("optimizer", EXACT)
def test_one_trainer_has_the_bits_of_the_reference(
    optimizer: str, config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """The reference computes on the same GPU, with all rows in its memory. Every read of a row is checked, too."""
    reference = train(run_ranks, 1, config, tmp_path / "reference", *rows(optimizer))
    found = train(run_ranks, 3, config, tmp_path / "run", *rows(optimizer), "debug.verify_rows=true")
    assert compare(reference, found).largest() == 0.0
    assert losses_of(found) == losses_of(reference)


@pytest.mark.parametrize(("trainers", "sharing", "sums", "settings"), SHARED)
def test_trainers_that_share_a_gpu_have_the_bits_of_the_reference(
    trainers: int, sharing: str, sums: str, settings: list[str], config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Row gradients, copies and dense gradients of each pass main memory on their way to the others."""
    if sums == "horovod" and not has_horovod():
        pytest.skip("Horovod is not installed")
    slices = f"train.reference_slices={trainers}"
    reference = train(run_ranks, 1, config, tmp_path / "reference", *settings, slices)
    shared = (f"cache.sharing={sharing}", f"train.dense_sums={sums}", "debug.verify_rows=true")
    found = train(run_ranks, 2 + trainers, config, tmp_path / "run", *settings, *shared)
    assert compare(reference, found).largest() == 0.0


@pytest.mark.parametrize("sharing", ["home", "replicated"])
def test_rows_of_two_widths_have_the_bits_of_the_reference(
    sharing: str, wide_config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    reference = train(run_ranks, 1, wide_config, tmp_path / "reference", "train.reference_slices=2")
    settings = (f"cache.sharing={sharing}", "train.dense_sums=mpi", "debug.verify_rows=true")
    found = train(run_ranks, 4, wide_config, tmp_path / "run", *settings)
    assert compare(reference, found).largest() == 0.0


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad", "adam"])
def test_a_gpu_trains_as_the_cpu_does(optimizer: str, config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Within rounding: matrices are multiplied in another order."""
    own = f"optimizer.rows={optimizer}"
    settings = (own, "optimizer.dense=SGD", *(["optimizer.rows_eps=1e-3"] if optimizer != "sgd" else []))
    reference = train(run_ranks, 1, config, tmp_path / "cpu", *settings, "train.device=cpu")
    found = train(run_ranks, 3, config, tmp_path / "gpu", *settings, "train.deterministic=false")
    assert compare(reference, found).largest() <= 1e-4
    assert losses_of(found) == pytest.approx(losses_of(reference), rel=1e-4)


def test_runs_go_on_from_a_checkpoint_with_the_same_bits(config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    whole = train(run_ranks, 3, config, tmp_path / "whole")
    stopped = train(run_ranks, 3, config, tmp_path / "stopped", "train.max_steps=31")
    found = train(run_ranks, 3, config, stopped, "train.resume=auto")
    assert compare(whole, found).largest() == 0.0


def test_trainers_leave_a_gpu_alone_that_not_all_of_them_have(
    config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Two trainers see one GPU: `auto` takes the CPU for both, and says so."""
    output = tmp_path / "run"
    settings = ("roles.servers=1", "train.device=auto", f"train.output={output}", "roles.placement=rank_order")
    finished = run_ranks(4, "bagpipe", "train", config, *settings, env={"CUDA_VISIBLE_DEVICES": "0"}, timeout_s=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (
        "trainers compute on: cpu (train.device = auto: 1 of 2 trainers have no GPU of their own: 1" in finished.stderr
    )
    assert 'device = "cpu"' in (output / "config.toml").read_text()
