"""A command's memory is seen from outside, and its failure is told with what it printed last."""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.jobs import watched_command
from benchmarks.jobs.watched_command import CommandError, run_watched, with_children

MIB = 1 << 20


def test_memory_of_all_processes_is_seen() -> None:
    """A process and its child hold 64 MiB each."""
    child = f"import time; block = b'x' * {64 * MIB}; time.sleep(2.5)"
    program = f"import subprocess, sys; {child.replace('time.sleep(2.5)', '')}"
    program += f"subprocess.run([sys.executable, '-c', {child!r}]); print('done')"
    run = run_watched([sys.executable, "-c", program], os.environ, 60)
    assert run.output == "done\n"
    assert 64 * MIB < run.largest_rss_bytes < 128 * MIB
    assert run.memory_bytes > 128 * MIB
    assert 0.0 <= run.others_share <= 1.0


@pytest.mark.parametrize(("sum_s", "least", "most"), [(0.0, 5, 100), (0.1, 1, 1)])
def test_pages_that_take_long_are_not_added_up_often(
    monkeypatch: pytest.MonkeyPatch, sum_s: float, least: int, most: int
) -> None:
    peaks, sums = [0], []

    def each_below(_pid: int, file: str, _key: str) -> list[int]:
        if file == "status":
            peaks.append(peaks[-1] + 1)
            return [3, peaks[-1]]
        time.sleep(sum_s)
        sums.append(file)
        return [3, len(sums)]

    monkeypatch.setattr(watched_command, "_each_below", each_below)
    monkeypatch.setattr(watched_command, "_LOOK_EVERY_S", 0.02)
    run = run_watched(["sleep", "1"], os.environ, 60)
    assert least <= len(sums) <= most
    assert peaks[-1] > 5
    assert (run.largest_rss_bytes, run.memory_bytes) == (peaks[-1], 3 + len(sums))


def test_a_failure_shows_the_last_lines() -> None:
    with pytest.raises(CommandError, match=r"status 3:(.|\n)*the cause"):
        run_watched(
            [sys.executable, "-c", "import sys; print('the cause', file=sys.stderr); sys.exit(3)"], os.environ, 60
        )


def test_a_command_that_does_not_end_is_ended_with_its_children() -> None:
    program = "import subprocess, sys; subprocess.run(['sleep', '50'])"
    start = time.monotonic()
    with pytest.raises(CommandError, match="after 1 s"):
        run_watched([sys.executable, "-c", program], os.environ, 1)
    assert time.monotonic() - start < 20


def test_a_command_that_ends_well_once_its_children_are_ended_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the ends of its children and its own it may see that there is nothing left to do."""

    def end_children(process: subprocess.Popen[bytes]) -> None:
        _, *children = with_children(process.pid)
        for child in children:
            os.kill(child, signal.SIGKILL)
        process.wait()

    monkeypatch.setattr(watched_command, "_end", end_children)
    with pytest.raises(CommandError, match="status 0 after 1 s"):
        run_watched([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '50'])"], os.environ, 1)
