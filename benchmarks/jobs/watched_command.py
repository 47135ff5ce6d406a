"""Runs a command to its end and watches the memory of its processes from outside."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.other_load import OtherLoad

_LOOK_EVERY_S = 2.0
_PAUSE = 50
"""Times as long as adding up all pages, which takes 0.2 s of a core of large processes, away from what is measured."""
_SHOWN_LINES = 30


class CommandError(BagpipeError):
    """A command that a benchmark started has failed."""


@dataclass(frozen=True)
class WatchedRun:
    """What a command did.

    Attributes:
        output: its standard output.
        largest_rss_bytes: peak resident memory of its largest process, as the kernel keeps it for each process.
        memory_bytes: most that all its processes held at once, seen every two seconds, of large ones every ten or so;
            shared pages count once.
        others_share: of the machine's cores, from 0 to 1, that other programs used meanwhile.
    """

    output: str
    largest_rss_bytes: int
    memory_bytes: int
    others_share: float


def run_watched(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> WatchedRun:
    """Run a command in the repository's folder until it ends.

    Raises:
        CommandError: it failed or took too long; the error shows its last lines.
    """
    largest_rss_bytes = memory_bytes = 0
    next_sum = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors, OtherLoad() as others:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        deadline = time.monotonic() + timeout_s
        try:
            while process.poll() is None and time.monotonic() < deadline:
                largest_rss_bytes = max(largest_rss_bytes, *_each_below(process.pid, "status", "VmHWM:"))
                if (start := time.monotonic()) >= next_sum:
                    memory_bytes = max(memory_bytes, sum(_each_below(process.pid, "smaps_rollup", "Pss:")))
                    next_sum = time.monotonic() + _PAUSE * (time.monotonic() - start)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY_S)
        finally:
            if must_end := process.poll() is None:
                _end(process)
        output.seek(0), errors.seek(0)
        if must_end or process.returncode:  # one whose children are ended may still end well
            last = "".join([*output, *errors][-_SHOWN_LINES:])
            reason = f"status {process.returncode}" + (f" after {timeout_s:.0f} s" if must_end else "")
            raise CommandError(f"{' '.join(command)}\nended with {reason}:\n{last}")
        text = output.read()
    return WatchedRun(text, largest_rss_bytes, memory_bytes, others.share)


def _each_below(pid: int, file: str, key: str) -> list[int]:
    """The number of bytes behind a key of a file in /proc, of each process from `pid` downwards."""
    found = [0]
    for process in with_children(pid):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(_kib(Path("/proc", str(process), file), key) * 1024)
    return found


def with_children(pid: int) -> Iterator[int]:
    """A process and all below it, those that start others before these."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        yield pid
        yield from (child.pid for child in root.children(recursive=True))


def _kib(path: Path, key: str) -> int:
    """The number behind a key of a file in /proc; 0 where it has none."""
    with path.open(encoding="utf-8") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(key)), 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started."""
    for pid in reversed(list(with_children(process.pid))):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    process.wait()
