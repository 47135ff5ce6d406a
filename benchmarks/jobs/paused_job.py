"""A command that can be stopped and let go on, with all processes that it has started."""

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

import psutil

from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.watched_command import CommandError, end_process, with_children

_SHOWN_LINES = 30


class PausedJob:
    """A command in the repository's folder; leave it to end it with all its processes.

    Args:
        command: what to run.
        environment: of it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment

    def __enter__(self) -> "PausedJob":
        self._printed = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            cwd=REPOSITORY,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            end_process(self._process)
        self._printed.close()

    def stop(self) -> None:
        """Take all its processes off the cores; those that start others first."""
        for pid in with_children(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).suspend()

    def go_on(self) -> None:
        """Let them have the cores again; those that start others last."""
        for pid in reversed(list(with_children(self._process.pid))):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).resume()

    def require_running(self) -> None:
        """See that it has not ended.

        Raises:
            CommandError: it has; the error shows its last lines.
        """
        if self._process.poll() is not None:
            self._printed.seek(0)
            last = "".join([*self._printed][-_SHOWN_LINES:])
            raise CommandError(f"{' '.join(self._command)}\nended with status {self._process.returncode}:\n{last}")
