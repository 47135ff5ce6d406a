"""A model that diverges ends its run by name, before a checkpoint holds what is not finite."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from tests.end_to_end.test_equality import DRIVER, LINEAR
from tests.fork_server import forked, forked_rank

RunRanks = Callable[..., CompletedProcess[str]]

OF_ITS_PROCESS = "tests.end_to_end.model_of_its_process:OfItsProcess"
TOO_FAST = ["optimizer.rows=sgd", "optimizer.rows_lr=10", "optimizer.dense=SGD", "optimizer.dense_lr=10"]


@pytest.mark.parametrize(
    ("ranks", "linear"),
    [
        (4, "onednn"),
        pytest.param(1, "onednn", marks=pytest.mark.slow),
        pytest.param(1, "torch", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_diverges_ends_the_run_by_name(
    ranks: int, linear: str, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Whatever computes the linear layers, in trainers and in the reference."""
    output = tmp_path / "out"
    settings = [*TOO_FAST, f"kernels.linear={linear}", "train.checkpoint_every_steps=2", f"train.output={output}"]
    finished = run_ranks(ranks, *forked(["bagpipe", "train", config_path, *settings]), timeout_s=90)
    assert finished.returncode == 1, finished.stderr
    said = re.search(
        r"the model has diverged in step (\d+): .*table C\d+, row \d+.*The last good checkpoint is (\S+);",
        finished.stderr,
    )
    assert said, finished.stderr
    who = r"trainer [01] \(world rank [23]\) on \S+ " if ranks > 1 else ""
    assert re.search(f"bagpipe: {who}failed: the model has diverged", finished.stderr)
    good = find_checkpoints(output)
    assert Path(said[2]) in good
    for directory in good:
        checkpoint = load_checkpoint(directory)
        assert checkpoint.manifest.step < int(said[1])
        assert np.isfinite(checkpoint.read_rows(0, sum(checkpoint.manifest.table_rows))).all()
        assert all(torch.isfinite(weight).all() for weight in checkpoint.read_dense()[0].values())


def test_a_step_that_has_diverged_is_not_reported(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Nor where weights are updated layer by layer in the step behind it."""
    output = tmp_path / "out"
    settings = ["train.dense_sums=mpi", "train.log_every_steps=1", "train.max_steps=6", "roles.servers=1"]
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[*settings, f"train.output={output}"]]))
    broken = "a dense weight is infinite"
    finished = run_ranks(4, *forked_rank(DRIVER), config_path, runs, "--break", broken, timeout_s=90)
    assert finished.returncode == 1, finished.stderr
    assert re.search(r"diverged in step 3: layer top\.\d+\.bias is not finite after its update", finished.stderr)
    told = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    assert [event["step"] for event in told if event["event"] == "progress"] == [1, 2]


def test_a_trainer_whose_dense_weights_drift_is_named(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Three trainers, one of which changes a bit: no checkpoint of it is written."""
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[f"train.output={tmp_path / 'out'}", "train.max_steps=6", "roles.servers=1"]]))
    finished = run_ranks(5, *forked_rank(DRIVER), config_path, runs, "--break", "dense weights drift", timeout_s=90)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    assert re.search(
        r"trainer 0 .* failed: the trainers' dense weights differ after step 6: trainer 1 \(world rank 3\) on \S+ "
        r"drifted from the 2 others: 1 of \d+ tensors, the first is bottom\.0\.bias\. No checkpoint",
        finished.stderr,
    ), finished.stderr
    assert not find_checkpoints(tmp_path / "out")


def test_trainers_that_begin_with_other_weights_are_named(
    config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Before the first step: such as with another torch on one host."""
    runs = tmp_path / "runs.json"
    settings = [f"train.output={tmp_path / 'out'}", "roles.servers=1", f"model.name={OF_ITS_PROCESS}"]
    runs.write_text(json.dumps([settings]))
    config = tmp_path / "without_layers.toml"
    lines = [line for line in config_path.read_text().splitlines() if "_mlp" not in line]
    config.write_text("\n".join(lines).replace(LINEAR, "torch"))
    finished = run_ranks(4, *forked_rank(DRIVER), config, runs, timeout_s=90)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    assert re.search(
        r"trainer 0 .* failed: the trainers' dense weights differ after step 0: trainer 1 \(world rank 3\) on \S+ "
        r"drifted from the 1 others: 1 of 1 tensors, the first is scale\. They have not been trained yet",
        finished.stderr,
    ), finished.stderr
    assert not (tmp_path / "out" / "metrics.jsonl").read_text()
