"""What a rank does now, for those who watch: a small file that is written every few seconds while the process lives.

A thread writes it, so that it tells what the rank has been waiting for as well. A process that is stopped, killed or
cut off from the file system lets its file grow old, and readers call it stale.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.config.schema import TrainConfig
from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.storage.atomic_write import replace_text
from bagpipe_hpc.telemetry.resource_use import ResourceUse
from bagpipe_hpc.telemetry.results import strict_json
from bagpipe_hpc.telemetry.status.prometheus import prometheus_name, prometheus_text
from bagpipe_hpc.telemetry.status.status_file import ENDED, STATUS_FOLDER, who_is_silent
from bagpipe_hpc.telemetry.trace import Trace

BETWEEN = {Role.ORACLE: "reading", Role.SERVER: "serving", Role.TRAINER: "moving on"}
"""What a role does where no span is under way."""

_LONGEST_WRITE_S = 30.0
"""Longest wait at the end of a run for a file system that does not answer."""
_LONGEST_READ_S = 10.0
"""Longest wait for it at the end of a run that has failed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """What a rank tells of itself.

    Attributes:
        role: name of its role.
        role_rank: its number in the role.
        host: where it runs.
        process: its number there.
        doing: what its threads do, by the names of spans.
        since_s: for how long the first of them has been doing that.
        step: steps done, 0 where a role does not count them.
        values: what it has measured last, such as the loss, by name.
        shares: parts of the time since the file before, by the names of spans.
        spans_s: seconds since the start, by the names of spans.
        processor_s: processor time of all threads since the start.
        resident_bytes: largest resident memory.
        every_s: seconds between files.
        time_s: when it was written, in seconds since 1970.
    """

    role: str
    role_rank: int
    host: str
    process: int
    doing: list[str]
    since_s: float
    step: int
    values: dict[str, float]
    shares: dict[str, float]
    spans_s: dict[str, float]
    processor_s: float
    resident_bytes: int
    every_s: float
    time_s: float


class StatusWriter:
    """Writes the files of a rank during its body; a context manager.

    A file that cannot be written is reported once, and the run goes on without it.

    Args:
        role: of the rank.
        role_rank: its number in the role.
        host: its host.
        trace: knows what it does.
        every_s: seconds between files.
        folder: for what `bagpipe top` reads; it is made.
        prometheus: folder for node exporter's textfile collector; None for none.
        output: absolute path of the run's output folder, for Prometheus.
    """

    def __init__(
        self,
        role: Role,
        role_rank: int,
        host: str,
        trace: Trace,
        every_s: float,
        folder: Path,
        prometheus: Path | None = None,
        output: Path = Path(),
    ) -> None:
        self._role, self._role_rank, self._host, self._output = role, role_rank, host, output
        self._trace = trace
        self._every_s = every_s
        name = f"{role.value}-{role_rank}"
        self._path = folder / f"{name}.json"
        self._prometheus = None if prometheus is None else prometheus / prometheus_name(name, output)
        self._is_sound = True
        self._before: dict[str, float] = {}
        self._before_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="status", daemon=True)

    def __enter__(self) -> "StatusWriter":
        for path in filter(None, (self._path, self._prometheus)):
            with contextlib.suppress(OSError):  # the first file says what is wrong
                path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._thread.join(_LONGEST_WRITE_S)
        if kind is None and self._is_sound and not self._thread.is_alive():  # after an error the file grows old
            self._write([ENDED])
            if self._prometheus:
                with contextlib.suppress(OSError):  # its folder has broken since
                    self._prometheus.unlink(missing_ok=True)

    def now(self, doing: list[str] | None = None) -> Status:
        """What the rank does at this moment; `doing`, if given, in place of what the trace says."""
        under_way, since_s = self._trace.under_way()
        spans_s, now_s = self._trace.sums_s(), time.monotonic()
        passed_s = max(1e-9, now_s - self._before_s)
        shares = {name: (total - self._before.get(name, 0.0)) / passed_s for name, total in spans_s.items()}
        self._before, self._before_s = spans_s, now_s
        used = ResourceUse.now()
        return Status(
            role=self._role.value,
            role_rank=self._role_rank,
            host=self._host,
            process=os.getpid(),
            doing=doing or under_way or [BETWEEN[self._role]],
            since_s=round(since_s, 3),
            step=self._trace.step,
            values=dict(self._trace.values),
            shares={name: round(share, 3) for name, share in shares.items() if share >= 0.001},
            spans_s={name: round(total, 3) for name, total in spans_s.items()},
            processor_s=round(used.processor_s, 3),
            resident_bytes=used.peak_bytes,
            every_s=self._every_s,
            time_s=round(time.time(), 3),
        )

    def _write_on(self) -> None:
        self._write()
        while self._is_sound and not self._ended.wait(self._every_s):
            self._write()

    def _write(self, doing: list[str] | None = None) -> None:
        status = self.now(doing)
        try:
            replace_text(self._path, strict_json(asdict(status)) + "\n")
            if self._prometheus:
                replace_text(self._prometheus, prometheus_text([asdict(status)], self._output))
        except OSError as error:
            log.warning("%s: cannot be written (%s): no more is told of what this rank does", error.filename, error)
            self._is_sound = False


def telling_status(
    folder: Path | None, settings: TrainConfig, comms: Communicators, trace: Trace
) -> AbstractContextManager[object]:
    """Let this rank tell what it does during the body, if that is asked for.

    Args:
        folder: that ranks write their logs to; None: nowhere.
        settings: how often, and where else.
        comms: this rank's communicators.
        trace: knows what it does.
    """
    if folder is None or not settings.status_every_s:
        return nullcontext()
    return StatusWriter(
        *(comms.role, comms.role_rank, comms.host, trace, settings.status_every_s, folder / STATUS_FOLDER),
        prometheus=Path(settings.prometheus) if settings.prometheus else None,
        output=folder.resolve(),
    )


@contextlib.contextmanager
def naming_silent_ranks(folder: Path | None, timeout_s: float) -> Iterator[None]:
    """Where the body waits too long for other ranks, add to the error which of them have fallen silent.

    Args:
        folder: as given to `telling_status`, whose files of earlier runs are gone.
        timeout_s: how long such a wait may last.

    Raises:
        WaitTimeoutError: the body has raised one; this one also names the silent ranks.
    """
    try:
        yield
    except WaitTimeoutError as error:
        silent = _found_silent(folder / STATUS_FOLDER, timeout_s) if folder else ""
        raise WaitTimeoutError(f"{error}{silent}") from error


def _found_silent(folder: Path, waited_s: float) -> str:
    """As `who_is_silent`, within a time limit: a file system that does not answer must not keep the job from ending."""
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(who_is_silent(folder, waited_s)), name="silence", daemon=True)
    reader.start()
    reader.join(_LONGEST_READ_S)
    return found[0] if found else f"; {folder} could not be read within {_LONGEST_READ_S:.0f} s"
