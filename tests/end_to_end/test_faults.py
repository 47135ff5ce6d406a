"""A rank that is killed ends the job soon; the run goes on from its last checkpoint and ends as if nothing had been."""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.killed_runs import (
    ORACLE,
    RANKS,
    SERVER,
    SERVERS,
    TRAINER,
    TRAINERS,
    Killed,
    command,
    has_trained,
    kill_one,
    soak,
)
from tests.end_to_end.test_equality import RunRanks
from tests.fork_server import forked

END_S = 10.0
INCREMENTS = "train.full_checkpoint_every=3"


def check_ended(killed: Killed | CompletedProcess[str], output: Path, log_name: str) -> None:
    assert isinstance(killed, Killed), "the run was over before it could be killed"
    assert killed.finished.returncode != 0, killed.finished.stderr
    assert killed.end_s < END_S
    assert killed.left == ()
    # A launcher knows the process number at most; the logs say whose it was.
    (log,) = (path for path in (output / "logs").iterdir() if f"process {killed.process} on " in path.read_text())
    assert log.name == log_name
    assert not (output / "summary.json").exists()


def check_goes_on(config_path: Path, output: Path, whole_run: Path, run_ranks: RunRanks) -> None:
    finished = run_ranks(RANKS, *forked(command(config_path, output)))
    assert finished.returncode == 0, finished.stderr
    assert compare(whole_run, output).largest() == 0.0


def test_a_killed_rank_ends_the_job(config_path: Path, tmp_path: Path) -> None:
    """What is there by then is whole; that a run goes on from it is the next test's, in `make test-all`."""
    output = tmp_path / "run"
    killed = kill_one(RANKS, command(config_path, output), SERVER, lambda: has_trained(output, 42))
    check_ended(killed, output, "server-1.log")
    load_checkpoint(find_checkpoints(output)[-1]).verify()


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "steps"), [(ORACLE, 63), (TRAINER, 105)])
def test_a_killed_rank_ends_the_job_and_the_run_goes_on(
    rank: int, steps: int, config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """A server that is killed: in the next test."""
    output = tmp_path / "run"
    killed = kill_one(RANKS, command(config_path, output), rank, lambda: has_trained(output, steps))
    check_ended(killed, output, {ORACLE: "oracle-0.log", TRAINER: "trainer-1.log"}[rank])
    check_goes_on(config_path, output, whole_run, run_ranks)


@pytest.mark.slow
def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Whichever of them is seen, behind the first two: a small one can come and go between two looks."""
    output = tmp_path / "run"
    seen: list[int] = []

    def is_writing() -> bool:
        partial = (output / "checkpoints").glob("step-*.partial")
        seen.extend(step for path in partial if (step := int(path.stem.removeprefix("step-"))) >= 60)
        return bool(seen)

    killed = kill_one(RANKS, [*command(config_path, output), INCREMENTS], SERVER, is_writing)
    assert isinstance(killed, Killed), "the run was over before it could be killed"
    newest = load_checkpoint(find_checkpoints(output)[-1])
    newest.verify()
    assert newest.manifest.step >= seen[0] - 20
    check_goes_on(config_path, output, whole_run, run_ranks)


@pytest.mark.slow
def test_random_kills_leave_no_trace(config_path: Path, whole_run: Path, tmp_path: Path) -> None:
    """The short form of `python -m tests.end_to_end.soak`."""
    output = tmp_path / "run"
    result = soak([*command(config_path, output), INCREMENTS], output, SERVERS, TRAINERS, kills=2, seed=1)
    assert max(result.ends_s) < END_S
    assert compare(whole_run, output).largest() == 0.0


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.slow
@pytest.mark.parametrize("befalls", [Path.unlink, cut_in_half])
def test_a_shard_that_is_lost_while_the_run_trains_is_named(
    befalls: Callable[[Path], None], config_path: Path, shards: Path, tmp_path: Path
) -> None:
    """Files that are open stay readable when they are removed; each epoch opens them again."""
    copy, output = tmp_path / "shards", tmp_path / "run"
    shutil.copytree(shards, copy)
    lost = copy / "train-00001.h5"

    def lose() -> bool:
        if not has_trained(output, 40):
            return False
        befalls(lost)
        return True

    ended = kill_one(RANKS, [*command(config_path, output), f"data.path={copy}"], rank=RANKS, when=lose)
    assert isinstance(ended, CompletedProcess)  # nobody was killed
    assert ended.returncode not in (0, 124, 137), ended.stderr
    who = r"bagpipe: (oracle|trainer) \d \(world rank \d\) on \S+"
    what = rf"{re.escape(str(lost))}: (the shard is missing|cannot be read)"
    assert re.search(f"{who} failed: {what}", ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    load_checkpoint(find_checkpoints(output)[-1]).verify()


@pytest.mark.slow
def test_a_vanished_shard_is_named(config_path: Path, shards: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Before training: on every rank one message."""
    copy = tmp_path / "shards"
    copy.mkdir()
    for path in shards.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "train-00001.h5").unlink()
    start = time.monotonic()
    train = ["bagpipe", "train", config_path, f"data.path={copy}", f"train.output={tmp_path / 'o'}"]
    finished = run_ranks(RANKS, *forked(train))
    assert finished.returncode == 2
    assert finished.stderr.count("train-00001.h5") == 1
    assert time.monotonic() - start < 60
