"""A rank that is killed ends the job soon; the run goes on from its last checkpoint and ends as if nothing had been."""

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.comparison import compare
from bagpipe_hpc.storage.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoint_folder import find_checkpoints
from tests.end_to_end.killed_runs import Killed, kill_one, soak
from tests.end_to_end.test_equality import RunRanks, overrides, train
from tests.ranks import run_ranks as start_ranks

SERVERS, TRAINERS = 2, 2
RANKS = 1 + SERVERS + TRAINERS
ORACLE, SERVER, TRAINER = 0, 2, 4
END_S = 10.0


def settings(output: Path) -> list[str]:
    return overrides(
        "adam",
        output,
        f"roles.servers={SERVERS}",
        "train.deterministic=true",
        "train.epochs=12",
        "train.checkpoint_every_steps=20",
        "train.resume=auto",
    )


def command(config_path: Path, output: Path) -> list[str | Path]:
    return ["bagpipe", "train", config_path, *settings(output)]


@pytest.fixture(scope="module")
def whole_run(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(start_ranks, RANKS, config_path, [settings(folder / "run")], folder)
    return folder / "run"


def has_trained(output: Path, steps: int) -> bool:
    """Whether the metrics tell of so many steps."""
    try:
        lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return bool(lines) and max(json.loads(line)["step"] for line in lines) >= steps
    except (OSError, ValueError):
        return False


def check_goes_on(config_path: Path, output: Path, whole_run: Path, run_ranks: RunRanks) -> None:
    finished = run_ranks(RANKS, *command(config_path, output))
    assert finished.returncode == 0, finished.stderr
    assert compare(whole_run, output).largest() == 0.0


@pytest.mark.parametrize(("rank", "steps"), [(ORACLE, 63), (SERVER, 28), (TRAINER, 105)])
def test_a_killed_rank_ends_the_job_and_the_run_goes_on(
    rank: int, steps: int, config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    killed = kill_one(RANKS, command(config_path, output), rank, lambda: has_trained(output, steps))
    assert isinstance(killed, Killed), "the run was over before it could be killed"
    assert killed.finished.returncode != 0, killed.finished.stderr
    assert killed.end_s < END_S
    assert not (output / "summary.json").exists()
    check_goes_on(config_path, output, whole_run, run_ranks)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    output = tmp_path / "run"

    def is_writing() -> bool:
        return (output / "checkpoints" / "step-00000060.partial").exists()

    killed = kill_one(RANKS, command(config_path, output), SERVER, is_writing)
    assert isinstance(killed, Killed), "the run was over before it could be killed"
    newest = load_checkpoint(find_checkpoints(output)[-1])
    newest.verify()
    assert newest.manifest.step in (40, 60)
    check_goes_on(config_path, output, whole_run, run_ranks)


def test_random_kills_leave_no_trace(config_path: Path, whole_run: Path, tmp_path: Path) -> None:
    """The short form of `python -m tests.end_to_end.soak`."""
    output = tmp_path / "run"
    result = soak(command(config_path, output), output, SERVERS, TRAINERS, kills=3, seed=1)
    assert max(result.ends_s) < END_S
    assert compare(whole_run, output).largest() == 0.0


def test_an_unwritable_checkpoint_is_named_and_earlier_ones_stay(
    config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """A file where the checkpoint's folder should be, as root may write everywhere."""
    output = tmp_path / "run"

    def block() -> bool:
        if not find_checkpoints(output):
            return False
        for step in range(80, 324, 20):
            (output / "checkpoints" / f"step-{step:08d}.partial").touch()
        return True

    ended = kill_one(RANKS, command(config_path, output), rank=RANKS, when=block)  # nobody is killed
    assert isinstance(ended, CompletedProcess)
    assert ended.returncode != 0
    assert "cannot be written" in ended.stderr
    assert "Earlier checkpoints are unharmed" in ended.stderr
    for path in (output / "checkpoints").glob("*.partial"):
        path.unlink()
    check_goes_on(config_path, output, whole_run, run_ranks)


def test_a_vanished_shard_is_named(config_path: Path, shards: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Before training: on every rank one message."""
    copy = tmp_path / "shards"
    copy.mkdir()
    for path in shards.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "train-00001.h5").unlink()
    start = time.monotonic()
    finished = run_ranks(RANKS, "bagpipe", "train", config_path, f"data.path={copy}", f"train.output={tmp_path / 'o'}")
    assert finished.returncode == 2
    assert finished.stderr.count("train-00001.h5") == 1
    assert time.monotonic() - start < 60
