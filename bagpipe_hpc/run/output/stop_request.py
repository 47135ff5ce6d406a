"""A request to end a run early: with a checkpoint, from which it can go on.

It comes as a signal to the oracle (SIGUSR1, within a Slurm job also SIGTERM) or as a file in the output folder, for
which `bagpipe stop` is the command: not every launcher hands signals on to its ranks. The file repeats the lock of the
run that is meant, so a request that came too late for one run does not end the next. Other ranks ignore these signals,
so that they live until the checkpoint is written; so does the oracle when they come a second time.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.run_lock import LOCK_NAME, living_lock

log = logging.getLogger(__name__)

STOP_NAME = "stop"
_LOOK_EVERY_S = 1.0
_LISTEN_S = 0.2


def request_stop(output: Path) -> None:
    """Ask the run in an output folder to stop: it writes a checkpoint and ends where the next one, or an epoch, ends.

    Raises:
        ConfigError: no run is in the folder, or it cannot be written.
    """
    try:
        lock = living_lock(output)
        if lock is None:
            raise ConfigError(f"{output}: no run is in this folder; name train.output of one that trains")
        with atomic_write(output / STOP_NAME) as path:
            path.write_bytes(lock)
    except OSError as error:
        raise ConfigError(
            f"{output / STOP_NAME}: cannot be written ({error.strerror}); check its permissions"
        ) from error


def forget_stop(output: Path) -> None:
    """Remove a request that means the run which holds the folder, and has come to its end."""
    with contextlib.suppress(OSError):  # nearly always there is none
        if (output / STOP_NAME).read_bytes() == (output / LOCK_NAME).read_bytes():
            (output / STOP_NAME).unlink()


class StopRequest:
    """Whether this run has been asked to stop; a context manager on every rank, in its main thread, around the run.

    A thread waits for the signals, which the main thread blocks: they would interrupt its system calls inside MPI.
    Threads of libraries, which block nothing, run the handler.

    Args:
        output: the run's output folder.
        listens: whether this rank is the one that stops the others, the oracle. Other ranks ignore the signals.
    """

    def __init__(self, output: Path, *, listens: bool) -> None:
        self._path = output / STOP_NAME
        self._lock_path = output / LOCK_NAME
        self._asked_by = ""
        self._looked_s = 0.0
        self._listens = listens
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="stop request", daemon=True)

    def __enter__(self) -> "StopRequest":
        handler = self._receive if self._listens else signal.SIG_IGN
        self._before = {number: signal.signal(number, handler) for number in _signals()}
        if self._listens:
            signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listens:
            self._ended.set()
            self._thread.join()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def is_asked(self) -> bool:
        """Whether to stop; looks for the file once a second at most."""
        if not self._asked_by and time.monotonic() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = time.monotonic()
            with contextlib.suppress(OSError):  # nearly always there is no such file
                if self._path.read_bytes() == self._lock_path.read_bytes():
                    self._note(str(self._path))
        return bool(self._asked_by)

    def answer(self) -> None:
        """The run has stopped: remove the request."""
        self._path.unlink(missing_ok=True)

    def _listen(self) -> None:
        while not self._ended.is_set():
            received = signal.sigtimedwait(_signals(), _LISTEN_S)
            # Behind SIGCONT, when its time is over, CPython 3.11 gives back a struct that nobody has filled.
            if received is not None and received.si_signo in _signals():
                self._receive(received.si_signo, None)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._note(signal.Signals(number).name)

    def _note(self, who: str) -> None:
        if not self._asked_by:
            log.info("asked to stop by %s: training to the end of the segment", who)
        self._asked_by = who


class NeverStopped:
    """In place of `StopRequest`, for a run that is not asked: there is nothing that it could go on from later."""

    def __enter__(self) -> "NeverStopped":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_asked(self) -> bool:
        """Never."""
        return False

    def answer(self) -> None:
        """There is no request."""


def _signals() -> list[signal.Signals]:
    """What asks to stop. Outside of Slurm SIGTERM is the launcher's way to end a job that has failed."""
    in_slurm = [signal.SIGTERM] if "SLURM_JOB_ID" in os.environ else []
    return [signal.SIGUSR1, *in_slurm]
