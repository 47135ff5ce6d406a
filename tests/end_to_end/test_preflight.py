"""The doctor's checks before a run: a sound set-up is told in short and trains, another one is refused by name."""

import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cluster.emulation import require_emulation, run_on_hosts

RunRanks = Callable[..., CompletedProcess[str]]

SLEEPING_RANK = """
import sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.Get_rank() == 2:
    time.sleep(300)
from bagpipe_hpc.cli.commands import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


def train(config: Path, output: Path) -> tuple[str | Path, ...]:
    settings = ("train.preflight=true", "train.max_steps=2", "train.evaluate=false", f"train.output={output}")
    return (sys.executable, "-m", "bagpipe_hpc", "train", config, *settings)


@pytest.mark.slow
def test_a_sound_set_up_trains(config_path: Path, shared: Path, tmp_path: Path) -> None:
    require_emulation()
    ended = run_on_hosts("2,1", *train(config_path, tmp_path / "out"), share=shared, timeout_s=90)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = [line for line in ended.stderr.splitlines() if line.startswith("preflight: ")]
    assert told[0].startswith("preflight: 2 hosts, 3 ranks: alike in Python ")
    assert told[1] == "preflight: MPI gives thread level multiple everywhere"
    assert any(line.startswith("preflight: links: 1 between hosts, one-sided calls work, ") for line in told)
    assert "preflight: GPUs: none" in told
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.slow
def test_an_output_that_cannot_be_written_is_refused(config_path: Path, run_ranks: RunRanks) -> None:
    """Once, with the host's name, and before the run's own checks."""
    finished = run_ranks(3, *train(config_path, Path("/proc/no-folder")), timeout_s=60)
    assert finished.returncode == 2, finished.stdout + finished.stderr
    host = re.escape(socket.gethostname())
    refusal = f"bagpipe: error: train\\.preflight: {host}: cannot write to the output folder: .*Name another folder"
    assert len(re.findall(refusal, finished.stderr)) == 1, finished.stderr
    assert "cache of" not in finished.stderr


@pytest.mark.parametrize("command", ["doctor", pytest.param("train", marks=pytest.mark.slow)])
def test_a_rank_that_is_stopped_is_named(command: str, config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """The job ends, though the rank would have slept on."""
    program = tmp_path / "sleeping_rank.py"
    program.write_text(SLEEPING_RANK)
    arguments: tuple[str | Path, ...] = ("doctor", "--output", tmp_path, "--timeout-s", "5")
    if command == "train":
        arguments = (*train(config_path, tmp_path / "out")[3:], "train.timeout_s=5.0")
    finished = run_ranks(3, sys.executable, program, *arguments, timeout_s=90)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    assert "rank 2: no word of having started within 5 s: a rank is stopped" in finished.stderr
