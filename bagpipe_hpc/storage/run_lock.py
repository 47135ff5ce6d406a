"""One run at a time in an output folder. Standard library only.

A lock is a file that says who holds it, created where there is none (`O_EXCL`, which network file systems keep too),
and touched every few seconds while its holder lives. It is taken over from a holder that is dead: one of an earlier
start of the same Slurm job, which has been requeued, one of this host whose process is gone, or one of another host
that has not touched it for a minute. Hosts' clocks may differ, and on some file systems, such as Lustre, the time of a
file is that of the host that touched it. So where the time says a few minutes, the lock is watched for a while.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path

from bagpipe_hpc.errors import ConfigError

log = logging.getLogger(__name__)

LOCK_NAME = "run.lock"
_TOUCH_EVERY_S = 10.0
DEAD_AFTER_S = 60.0
"""If clocks agree, a lock that was last touched longer ago than this has no living holder."""
_CLOCKS_DIFFER_BY_S = 600.0
"""Most by which hosts' clocks may differ: a MUNGE credential, which Slurm uses, is valid for five minutes (munge(1),
`--ttl`)."""
_WATCH_S = 2.5 * _TOUCH_EVERY_S
_WATCH_EVERY_S = 1.0


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes:
        host: name of its host, and the namespace of process numbers there: containers may share a name.
        process: its number there.
        started: when it was started, in the host's clock ticks, since process numbers are reused.
        job: number of its Slurm job; empty outside of one.
        restarts: how often that job had been requeued by then.
    """

    host: str
    process: int
    started: int
    job: str
    restarts: int

    @classmethod
    def this_process(cls) -> "Owner":
        """The calling process."""
        restarts = os.environ.get("SLURM_RESTART_COUNT", "")  # Slurm sets it from the second start on
        return cls(
            host=_host(),
            process=os.getpid(),
            started=_start_of(os.getpid()),
            job=os.environ.get("SLURM_JOB_ID", ""),
            restarts=int(restarts) if restarts.isdecimal() else 0,
        )

    def is_dead(self, now: "Owner") -> bool:
        """Whether `now`, the process that asks, can be sure that this one has ended."""
        if self.job and self.job == now.job and self.restarts < now.restarts:
            return True  # a job runs once at a time, though one start of it may hold several runs
        return self.host == now.host and _start_of(self.process) != self.started

    def __str__(self) -> str:
        job = f", Slurm job {self.job}" if self.job else ""
        return f"process {self.process} on {self.host.partition(' ')[0]}{job}"


class RunLock:
    """The lock of an output folder, taken by `take` and held until `release`.

    Args:
        output: the folder; it must exist.
        lost: called with the reason, in another thread, if another run has the lock or may take it soon.
        setting: name of the setting that chooses the folder, for messages.
    """

    def __init__(self, output: Path, lost: Callable[[str], None], setting: str = "train.output") -> None:
        self._setting = setting
        self._path = output / LOCK_NAME
        self._content = (json.dumps(asdict(Owner.this_process())) + "\n").encode()
        self._lost = lost
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run lock", daemon=True)

    def take(self) -> None:
        """Take the lock.

        Raises:
            ConfigError: another run has it; the message names the owner and the cure.
            OSError: the folder cannot be written.
        """
        while not self._create():
            self._take_over()
        self._thread.start()

    def release(self) -> None:
        """Give the lock back."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(OSError):  # a lock that stays behind is void once this process is gone
            if self._path.read_bytes() == self._content:
                self._path.unlink()

    def _create(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._content)
        except OSError:  # a full disk: a lock without a name would keep others out
            self._path.unlink(missing_ok=True)
            raise
        return True

    def _take_over(self) -> None:
        """Remove the lock of a dead owner.

        Raises:
            ConfigError: it may be alive.
        """
        try:
            seen = self._path.read_bytes()
            silent_s = _seconds_since_touched(self._path)
            owner = _owner_of(seen)
            is_dead = _is_dead_or_watched(self._path, owner, silent_s)
        except FileNotFoundError:
            return  # given back just now
        if not is_dead:
            who = owner or "somebody who wrote no name yet"
            raise ConfigError(
                f"{self._path}: another run uses this output folder ({who}, alive {max(0.0, silent_s):.0f} s ago): "
                f"choose another {self._setting}, end that run, or, if it is dead, wait {DEAD_AFTER_S:.0f} s or remove "
                "this file"
            )
        aside = self._path.with_name(f".{LOCK_NAME}.{os.getpid()}.dead")
        try:
            self._path.rename(aside)
        except FileNotFoundError:
            return  # another run was faster
        if aside.read_bytes() == seen:
            aside.unlink()
        else:  # another run took over in between: that was its lock
            with contextlib.suppress(FileExistsError):  # a third run has one by now, which the other will see
                os.link(aside, self._path)
            aside.unlink()

    def _keep(self) -> None:
        """Touch the lock until it is given back or lost.

        A network file system that does not answer for a moment does no harm. But a run that cannot touch its lock must
        end before another run takes it for dead.
        """
        kept_s = time.monotonic()
        while not self._released.wait(_TOUCH_EVERY_S):
            try:
                found = self._path.read_bytes()
                if found != self._content:
                    self._lost(f"{self._path}: is the lock of another run now ({_owner_of(found) or 'without a name'})")
                    return
                os.utime(self._path)
                kept_s = time.monotonic()
            except OSError as error:
                silent_s = time.monotonic() - kept_s
                if silent_s > DEAD_AFTER_S - _TOUCH_EVERY_S:
                    self._lost(f"{self._path}: could not be read and touched for {silent_s:.0f} s ({error})")
                    return


def is_abandoned(folder: Path) -> bool:
    """Whether a folder has a lock whose owner is dead for sure.

    Raises:
        OSError: the lock cannot be read, or the folder not be written.
    """
    path = folder / LOCK_NAME
    try:
        return _life_of(_owner_of(path.read_bytes()), _seconds_since_touched(path)) is _Life.OVER
    except FileNotFoundError:
        return False


def living_lock(output: Path) -> bytes | None:
    """What the lock of the run in an output folder says, unless there is none or its owner is known to be dead.

    Raises:
        OSError: it cannot be read, or the folder not be written.
    """
    path = output / LOCK_NAME
    try:
        content = path.read_bytes()
        is_dead = _is_dead_or_watched(path, _owner_of(content), _seconds_since_touched(path))
    except FileNotFoundError:
        return None
    return None if is_dead else content


class _Life(Enum):
    """What is known of a lock's owner. In doubt: it seems silent for too long, but clocks may differ by that much."""

    LASTS = auto()
    IN_DOUBT = auto()
    OVER = auto()


def _life_of(owner: Owner | None, silent_s: float) -> _Life:
    now = Owner.this_process()
    if owner is not None and owner.is_dead(now):
        return _Life.OVER
    if owner is not None and owner.host == now.host and owner.process != now.process:
        return _Life.LASTS  # stopped, perhaps, by Ctrl-Z or with its virtual machine
    if silent_s > _CLOCKS_DIFFER_BY_S:
        return _Life.OVER
    return _Life.IN_DOUBT if abs(silent_s) > DEAD_AFTER_S else _Life.LASTS


def _is_dead_or_watched(path: Path, owner: Owner | None, silent_s: float) -> bool:
    """Whether a lock's owner is dead; where that is in doubt, whether nobody touches the lock for `_WATCH_S`."""
    life = _life_of(owner, silent_s)
    if life is not _Life.IN_DOUBT:
        return life is _Life.OVER
    log.warning("%s: seeing for %.0f s whether its owner lives (%s)", path, _WATCH_S, owner or "without a name")
    touched_ns, ends_s = path.stat().st_mtime_ns, time.monotonic() + _WATCH_S
    while time.monotonic() < ends_s:
        time.sleep(_WATCH_EVERY_S)
        path.read_bytes()  # opening a file makes a network file system ask its server for the time again
        if path.stat().st_mtime_ns != touched_ns:
            return False
    return True


def _seconds_since_touched(path: Path) -> float:
    """Seconds since a lock was touched, by the file system's clock, or by the hosts' where it has none of its own.

    Hosts' clocks may differ, so it may be negative.
    """
    probe = path.with_name(f".{LOCK_NAME}.{os.getpid()}.now")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _host() -> str:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = "pid:[?]"
    return f"{socket.gethostname()} {namespace}"


def _owner_of(text: bytes) -> Owner | None:
    """The owner that a lock names; None if its content is not that of a lock."""
    try:
        owner = Owner(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    has_texts = isinstance(owner.host, str) and isinstance(owner.job, str)
    has_numbers = all(type(number) is int for number in (owner.process, owner.started, owner.restarts))
    return owner if has_texts and has_numbers else None


def _start_of(process: int) -> int:
    """When a process of this host was started, in clock ticks since the host booted; -1 if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return -1
