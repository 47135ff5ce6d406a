"""A failing rank ends the whole job soon, with a message that says who and why; a run that cannot start is refused."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.host_memory import free_bytes
from bagpipe_hpc.storage.shard_manifest import load_manifest
from tests.end_to_end.test_equality import DRIVER

RunRanks = Callable[..., CompletedProcess[str]]

START_S = 15
"""What starting five ranks may take on a busy machine, on top of the ten seconds from failure to end."""


@pytest.mark.parametrize(
    ("fault", "role", "cause"),
    [
        ("trainer fails in a step", "trainer 1 (world rank 4)", "planted failure"),
        pytest.param("mover fails in a fetch", "trainer 1 (world rank 4)", "planted failure", marks=pytest.mark.slow),
        pytest.param("server runs out of memory", "server 1 (world rank 2)", "planted failure", marks=pytest.mark.slow),
        ("oracle fails", "oracle 0 (world rank 0)", "planted failure"),
    ],
)
def test_a_failing_rank_ends_the_job(
    fault: str, role: str, cause: str, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[f"train.output={tmp_path / 'out'}"]]))
    start = time.monotonic()
    finished = run_ranks(5, *DRIVER, config_path, runs, "--break", fault, timeout_s=90)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    assert time.monotonic() - start < START_S + 10
    assert f"{role} on " in finished.stderr
    assert cause in finished.stderr


def test_a_silent_trainer_is_noticed(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Every wait ends by timeout and names what it waited for."""
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[f"train.output={tmp_path / 'out'}", "train.timeout_s=8.0"]]))
    silence = {"TEST_SILENCE_S": "120"}
    finished = run_ranks(5, *DRIVER, config_path, runs, "--break", "trainer falls silent", timeout_s=100, env=silence)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    waits = "trainer 1 to finish plan [1-9]|the rows that|the delayed rows|the dense gradients"
    assert re.search(f"failed: waited 8 s for ({waits})", finished.stderr), finished.stderr


@pytest.fixture
def damaged(shards: Path, tmp_path: Path) -> Path:
    """The shards with one byte changed in the middle of a file."""
    folder = tmp_path / "damaged"
    shutil.copytree(shards, folder)
    path = folder / "train-00001.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return folder


def test_damaged_data_is_refused(damaged: Path, config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Before any rank trains, with one message and exit code 2."""
    command = ("python", "-m", "bagpipe_hpc", "train", config_path, f"data.path={damaged}")
    finished = run_ranks(5, *command, f"train.output={tmp_path / 'out'}", timeout_s=60)
    assert finished.returncode == 2
    assert finished.stderr.count("train-00001.h5") == 1
    assert not (tmp_path / "out").exists()


def test_an_earlier_run_is_not_overwritten(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("precious\n")
    finished = run_ranks(
        3, "python", "-m", "bagpipe_hpc", "train", config_path, f"train.output={tmp_path}", timeout_s=60
    )
    assert finished.returncode == 2
    assert finished.stderr.count("train.overwrite=true") == 1
    assert (tmp_path / "metrics.jsonl").read_text() == "precious\n"


def test_too_few_ranks_are_refused(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    finished = run_ranks(
        2, "python", "-m", "bagpipe_hpc", "train", config_path, f"train.output={tmp_path / 'out'}", timeout_s=60
    )
    assert finished.returncode == 2
    assert finished.stderr.count("2 MPI ranks are too few") == 1


@pytest.mark.parametrize(
    ("setting", "cause", "not_begun"),
    [
        ("cache.rows=50", "a single batch needs", "planner state"),
        ("optimizer.dense=Adagrat", "'Adagrat'", "checking"),
        ("model.top_mlp=[1000000000]", "dense models 15000.0 GB", "batches ahead"),
    ],
)
def test_a_refused_run_leaves_the_earlier_one(
    setting: str, cause: str, not_begun: str, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Even where it may be overwritten; what costs little is checked first."""
    (tmp_path / "metrics.jsonl").write_text("precious\n")
    command = ("python", "-m", "bagpipe_hpc", "train", config_path, "train.overwrite=true", setting)
    finished = run_ranks(4, *command, f"train.output={tmp_path}", timeout_s=90)
    assert finished.returncode == 2, finished.stderr
    assert finished.stderr.count(cause) == 1
    assert not_begun not in finished.stderr
    assert (tmp_path / "metrics.jsonl").read_text() == "precious\n"


def test_tables_that_do_not_fit_are_refused(
    shards: Path, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Before anything of their size is allocated; four times as much as is free would not get far."""
    rows = sum(load_manifest(shards).table_rows)
    free = free_bytes()
    width = 4 * free // rows // 4
    tiny_cache = ("train.batch_size=2", "train.max_steps=3", "lookahead.batches=1", "train.evaluate=false")
    command = ("python", "-m", "bagpipe_hpc", "train", config_path, f"model.embedding_dim={width}", *tiny_cache)
    finished = run_ranks(4, *command, f"train.output={tmp_path / 'out'}", "roles.servers=2", timeout_s=90)
    assert finished.returncode == 2, finished.stderr
    needed = re.search(r"the tables take ([0-9.]+) GB, ([0-9.]+) GB on each of 2 servers", finished.stderr)
    assert needed, finished.stderr
    assert float(needed[1]) * 1e9 == pytest.approx(4 * free, rel=0.05)
    assert float(needed[2]) == pytest.approx(float(needed[1]) / 2, abs=0.1)
    assert re.search(r"[3-9] more like \S+ would do, with [4-9] servers", finished.stderr)
    assert finished.stderr.count("bagpipe: error: ") == 1
    assert "batches ahead" not in finished.stderr  # nothing was planned
    assert not (tmp_path / "out").exists()
