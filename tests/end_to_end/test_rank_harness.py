"""The harness of tests/mpi fails when it should: it is run, in a process of its own, over planted tests."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.fork_server import SOCKET_VARIABLE, server_socket
from tests.ranks import ROOT, rank_environment

ENDS_SOON = ("sleep", "0.3")
"""What a rank runs to show that there is a launcher: MPICH's may die of SIGPIPE where a rank ends at once."""


def run_planted(folder: Path, source: str, *options: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run `source` under the conftest of tests/mpi, in a project of its own; returns the process and its seconds."""
    planted = folder / "ranks"
    planted.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "mpi" / "conftest.py", planted)
    (planted / "test_planted.py").write_text("import pytest\nfrom mpi4py import MPI\n\n\n" + textwrap.dedent(source))
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--rootdir={folder}",
        "ranks",
        *options,
    ]
    environment = rank_environment({"PYTHONPATH": str(ROOT), SOCKET_VARIABLE: str(server_socket())})
    start = time.monotonic()
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return ended, time.monotonic() - start


@pytest.mark.slow
def test_runs_each_test_on_its_number_of_ranks(tmp_path, run_ranks):
    assert run_ranks(1, *ENDS_SOON).returncode == 0  # skips where there is no launcher
    ended, _ = run_planted(
        tmp_path,
        """
        @pytest.mark.mpi(min_size=2)
        def test_two():
            assert MPI.COMM_WORLD.Get_size() == 2

        @pytest.mark.mpi(min_size=3)
        def test_three():
            assert MPI.COMM_WORLD.Get_size() == 3
        """,
    )
    assert ended.returncode == 0, ended.stdout
    assert "on 2 ranks: 1 passed" in ended.stdout
    assert "on 3 ranks: 1 passed" in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("failing_rank", [0, 2])
def test_failure_on_one_rank_fails_all(tmp_path, run_ranks, failing_rank):
    assert run_ranks(1, *ENDS_SOON).returncode == 0
    ended, _ = run_planted(
        tmp_path,
        f"""
        @pytest.mark.mpi(min_size=3)
        def test_one_rank_fails():
            assert MPI.COMM_WORLD.Get_rank() != {failing_rank}, "planted failure"

        @pytest.mark.mpi(min_size=3)
        def test_the_next_one_still_runs():
            assert MPI.COMM_WORLD.allreduce(1) == 3
        """,
    )
    assert ended.returncode == 1
    assert "on 3 ranks: 1 failed, 1 passed" in ended.stdout
    assert "planted failure" in ended.stdout
    assert f"failed on rank {failing_rank} of 3" in ended.stdout


@pytest.mark.slow
def test_failure_before_a_collective_does_not_hang(tmp_path, run_ranks):
    assert run_ranks(1, *ENDS_SOON).returncode == 0
    ended, seconds = run_planted(
        tmp_path,
        """
        @pytest.mark.mpi(min_size=2)
        def test_leaves_the_other_waiting():
            assert MPI.COMM_WORLD.Get_rank() != 1, "planted failure"
            MPI.COMM_WORLD.Barrier()
        """,
    )
    assert ended.returncode == 1
    assert "planted failure" in ended.stdout
    assert "the others do not arrive" in ended.stdout
    assert seconds < 60


@pytest.mark.slow
def test_hang_is_ended_with_the_stacks(tmp_path, run_ranks):
    assert run_ranks(1, *ENDS_SOON).returncode == 0
    ended, seconds = run_planted(
        tmp_path,
        """
        @pytest.mark.timeout(3)
        @pytest.mark.mpi(min_size=2)
        def test_waits_for_a_message_that_never_comes():
            MPI.COMM_WORLD.recv(source=MPI.ANY_SOURCE)
        """,
    )
    assert ended.returncode == 1
    assert "MPI.COMM_WORLD.recv(source=MPI.ANY_SOURCE)" in ended.stdout
    assert seconds < 60


@pytest.mark.slow
def test_skip_on_one_rank_only_is_a_failure(tmp_path, run_ranks):
    assert run_ranks(1, *ENDS_SOON).returncode == 0
    ended, _ = run_planted(
        tmp_path,
        """
        @pytest.mark.mpi(min_size=2)
        def test_skips_on_rank_1():
            if MPI.COMM_WORLD.Get_rank() == 1:
                pytest.skip("planted skip")
        """,
    )
    assert ended.returncode == 1
    assert "skipped on some ranks only" in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "word", "status"), [("true", "1 failed", 1), ("false", "1 skipped", 0)])
def test_missing_launcher_is_a_skip_and_in_ci_a_failure(tmp_path, monkeypatch, ci, word, status):
    monkeypatch.setenv("MPIRUN", "no-such-launcher")
    monkeypatch.setenv("CI", ci)
    ended, _ = run_planted(
        tmp_path,
        """
        @pytest.mark.mpi(min_size=2)
        def test_two():
            pass
        """,
    )
    assert ended.returncode == status
    assert word in ended.stdout


def test_time_limit_ends_the_ranks(run_ranks):
    start = time.monotonic()
    ended = run_ranks(2, "sleep", "1000", timeout_s=1)
    assert ended.returncode in (124, 137)
    assert time.monotonic() - start < 30


@pytest.mark.slow
def test_ranks_deaf_to_sigterm_are_killed(tmp_path, run_ranks):
    program = "import os, signal, sys, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    program += "(pathlib.Path(sys.argv[1]) / str(os.getpid())).touch(); time.sleep(1000)"
    ended = run_ranks(2, sys.executable, "-c", program, tmp_path, timeout_s=2, env={"RANKS_KILL_AFTER_S": "1"})
    assert ended.returncode in (124, 137)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
