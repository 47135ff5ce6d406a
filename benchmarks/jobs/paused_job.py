"""A command that can be stopped and let go on, with all processes that it has started."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

import psutil

from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.watched_command import CommandError, with_children

_SHOWN_LINES = 30


class PausedJob:
    """A command in the repository's folder; leave it to end it with all its processes, also those that it left behind.

    Args:
        command: what to run.
        environment: of it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._seen: dict[int, psutil.Process] = {}

    def __enter__(self) -> "PausedJob":
        self._printed = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            cwd=REPOSITORY,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        for process in self._seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ProcessLookupError):  # of those that nobody has seen, most are in its group
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._printed.close()

    def stop(self) -> None:
        """Take all its processes off the cores; those that start others first."""
        stopped: set[int] = set()
        while new := self._look() - stopped:  # one may have started another meanwhile
            for pid in sorted(new):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._seen[pid].suspend()
            stopped |= new

    def go_on(self) -> None:
        """Let them have the cores again; those that start others last."""
        for pid in sorted(self._look(), reverse=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen[pid].resume()

    def _look(self) -> set[int]:
        """Numbers of all its processes that there are, also of those whose parents have ended."""
        for pid in with_children(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen.setdefault(pid, psutil.Process(pid))
        return {pid for pid, process in self._seen.items() if process.is_running()}

    def require_running(self) -> None:
        """See that it has not ended.

        Raises:
            CommandError: it has; the error shows its last lines.
        """
        if self._process.poll() is not None:
            self._printed.seek(0)
            last = "".join([*self._printed][-_SHOWN_LINES:])
            raise CommandError(f"{' '.join(self._command)}\nended with status {self._process.returncode}:\n{last}")
