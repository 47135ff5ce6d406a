"""A job that is stopped does nothing, goes on where it was, and leaves no process behind."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.jobs.paused_job import PausedJob
from benchmarks.jobs.watched_command import CommandError

COUNT = """
import subprocess, sys, time
if len(sys.argv) == 2:
    sys.exit(subprocess.run([sys.executable, __file__, sys.argv[1], "child"]).returncode)
with open(sys.argv[1], "w", buffering=1) as file:
    for number in range(1_000_000):
        print(number, file=file)
        time.sleep(1e-3)
"""
"""A process and its child, which counts."""
TIMEOUT_S = 30.0


def grows(path: Path, seconds: float) -> bool:
    """Whether a file grows within some seconds."""
    size, deadline = path.stat().st_size if path.exists() else 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.stat().st_size > size:
            return True
        time.sleep(0.01)
    return False


def test_all_processes_stop_and_go_on(tmp_path: Path) -> None:
    program, counted = tmp_path / "count.py", tmp_path / "counted"
    program.write_text(COUNT)
    with PausedJob([sys.executable, str(program), str(counted)], os.environ) as job:
        assert grows(counted, TIMEOUT_S)
        for _ in range(2):
            job.stop()
            time.sleep(0.05)
            assert not grows(counted, 0.3)
            job.require_running()
            job.go_on()
            assert grows(counted, TIMEOUT_S)
        own = [child for child in psutil.Process().children(recursive=True) if str(program) in child.cmdline()]
        assert len(own) == 2
        job.stop()
    psutil.wait_procs(own, timeout=TIMEOUT_S)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in own)


def test_what_a_command_leaves_behind_is_ended() -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(300)' & sleep 0.5; exit 3"
    with PausedJob(["sh", "-c", script], os.environ) as job:
        left: list[psutil.Process] = []
        while not left:
            children = psutil.Process().children(recursive=True)
            left = [child for child in children if child.cmdline()[-1:] == ["import time; time.sleep(300)"]]
        with pytest.raises(CommandError, match="status 3"):
            watch(job)
        job.stop()
    psutil.wait_procs(left, timeout=TIMEOUT_S)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in left)


def test_a_job_that_has_ended_is_told_with_what_it_printed() -> None:
    failing = PausedJob([sys.executable, "-c", "print('the cause'); raise SystemExit(3)"], os.environ)
    with failing as job, pytest.raises(CommandError, match=r"status 3:(.|\n)*the cause"):
        watch(job)


def watch(job: PausedJob) -> None:
    """See for a while that a job runs."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        job.require_running()
