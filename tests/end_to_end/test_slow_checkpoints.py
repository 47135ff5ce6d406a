"""Checkpoints that take longer than `train.timeout_s` end no run: whoever waits for them has their limit."""

from pathlib import Path

import pytest

from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from tests.end_to_end.test_equality import RunRanks, overrides, train

SHORT_LIMIT = ["train.timeout_s=4.0", "train.evaluate=false", "roles.servers=1"]
"""A checkpoint takes 9 seconds of the 14 that it may take then."""


@pytest.mark.slow
def test_changes_of_rows_on_disk_wait_for_a_checkpoint(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """There is no room to keep more blocks as they were, so trainers wait for their rows, and for each other."""
    on_disk = ["tables.memory_gb=0.00006", f"tables.ssd_path={tmp_path}", "debug.ssd_path_in_memory=true"]
    short = ["train.checkpoint_every_steps=8", "train.max_steps=12", "lookahead.batches=3"]
    run = overrides("rowwise_adagrad", tmp_path / "out", *SHORT_LIMIT, *on_disk, *short)
    train(run_ranks, 4, config_path, [run], tmp_path, "--break", "checkpoints are slow")
    assert [path.name for path in find_checkpoints(tmp_path / "out")] == ["step-00000008", "step-00000012"]


@pytest.mark.slow
def test_the_oracle_waits_for_two_checkpoints_at_the_end(
    config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """The last one begins when the one before it is complete."""
    short = ["train.checkpoint_every_steps=11", "train.max_steps=12"]
    run = overrides("rowwise_adagrad", tmp_path / "out", *SHORT_LIMIT, *short)
    train(run_ranks, 4, config_path, [run], tmp_path, "--break", "checkpoints are slow")
    assert [path.name for path in find_checkpoints(tmp_path / "out")] == ["step-00000011", "step-00000012"]
