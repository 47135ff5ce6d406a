"""One run at a time in an output folder; the lock of a dead run is taken over, that of a living one never."""

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage import run_lock
from bagpipe_hpc.storage.run_lock import DEAD_AFTER_S, LOCK_NAME, Owner, RunLock
from tests.eventually import eventually


def lock_of(folder: Path) -> RunLock:
    return RunLock(folder, lambda _: None)


def leave_lock(folder: Path, owner: Owner, *, touched_s_ago: float = 0.0) -> Path:
    """What a run that was killed left behind; in one step, as another thread may be looking."""
    path = folder / LOCK_NAME
    new = folder / "new.lock"
    new.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    touched_s = time.time() - touched_s_ago
    os.utime(new, (touched_s, touched_s))
    return new.replace(path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Owner:
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return Owner.this_process()


@pytest.fixture
def living_process() -> int:
    """Of this host, but not this one."""
    return os.getppid()


def test_the_lock_names_its_owner_and_goes_with_it(tmp_path: Path, here: Owner) -> None:
    lock = lock_of(tmp_path)
    lock.take()
    assert Owner(**json.loads((tmp_path / LOCK_NAME).read_text(encoding="utf-8"))) == here
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_living_owner_is_named_and_left_alone(tmp_path: Path, here: Owner, living_process: int) -> None:
    owner = Owner(here.host, living_process, run_lock._start_of(living_process), "", 0)
    path = leave_lock(tmp_path, owner)
    before = path.read_bytes()
    host = re.escape(here.host.partition(" ")[0])
    with pytest.raises(ConfigError, match=rf"another run uses .* \(process {living_process} on {host}, alive 0 s ago"):
        lock_of(tmp_path).take()
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [LOCK_NAME]


@pytest.fixture
def brief_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "_WATCH_S", 0.2)
    monkeypatch.setattr(run_lock, "_WATCH_EVERY_S", 0.01)


@pytest.mark.usefixtures("brief_watch")
def test_an_owner_on_another_host_is_believed_for_a_minute(tmp_path: Path, here: Owner) -> None:
    elsewhere = replace(here, host="elsewhere")
    leave_lock(tmp_path, elsewhere, touched_s_ago=DEAD_AFTER_S / 2)
    with pytest.raises(ConfigError, match=r"on elsewhere, alive 30 s ago\).*wait 60 s or remove this file"):
        lock_of(tmp_path).take()
    leave_lock(tmp_path, elsewhere, touched_s_ago=DEAD_AFTER_S + 5)
    lock_of(tmp_path).take()


@pytest.mark.parametrize("behind_s", [150.0, -150.0, -7200.0])
def test_an_owner_whose_clock_differs_is_watched(
    tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch, behind_s: float
) -> None:
    """It touches its lock with times of its own, as on Lustre; after its death nobody does, whatever they say."""
    path = leave_lock(tmp_path, replace(here, host="elsewhere"), touched_s_ago=behind_s)
    monkeypatch.setattr(run_lock, "_WATCH_S", 20.0)
    monkeypatch.setattr(run_lock, "_WATCH_EVERY_S", 0.01)
    sleep = time.sleep

    def touch(seconds: float) -> None:
        sleep(seconds)
        os.utime(path, (time.time() - behind_s, time.time() - behind_s))

    with monkeypatch.context() as living:
        living.setattr(run_lock.time, "sleep", touch)
        with pytest.raises(ConfigError, match="on elsewhere, alive"):
            lock_of(tmp_path).take()
        assert run_lock.living_lock(tmp_path) == path.read_bytes()
    monkeypatch.setattr(run_lock, "_WATCH_S", 0.1)
    assert run_lock.living_lock(tmp_path) is None
    lock_of(tmp_path).take()


def test_an_owner_of_this_host_lives_however_silent(tmp_path: Path, here: Owner, living_process: int) -> None:
    """As one that Ctrl-Z or a debugger has stopped: when it goes on it finds the folder its own."""
    leave_lock(tmp_path, Owner(here.host, living_process, run_lock._start_of(living_process), "", 0), touched_s_ago=1e6)
    with pytest.raises(ConfigError, match="another run uses this output folder"):
        lock_of(tmp_path).take()


def test_a_dead_process_of_this_host_has_no_lock(tmp_path: Path, here: Owner) -> None:
    """By its number, and by its start where the number was given again."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for owner in (replace(here, process=gone.pid), replace(here, process=os.getppid(), started=1)):
        leave_lock(tmp_path, owner)
        lock = lock_of(tmp_path)
        lock.take()
        lock.release()


def test_a_requeued_job_takes_over_from_itself(tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_lock(tmp_path, replace(here, host="node1", job="17"))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with pytest.raises(ConfigError, match="on node1, Slurm job 17"):
        lock_of(tmp_path).take()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    lock_of(tmp_path).take()


def test_two_runs_of_one_slurm_job_keep_apart(tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of a job, or two mpiruns in its script: the job's number tells nothing, host and process do."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for restarts in (0, 3):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
        leave_lock(tmp_path, replace(here, host="node1", job="17", restarts=restarts))
        with pytest.raises(ConfigError, match="on node1, Slurm job 17"):
            lock_of(tmp_path).take()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    leave_lock(tmp_path, replace(here, process=gone.pid, job="17", restarts=3))
    lock_of(tmp_path).take()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "[" * 100_000,
        "nonsense",
        '{"host": 1, "process": "x", "started": 0, "job": "", "restarts": 0}',
        '{"host": "a", "process": 1, "started": 0, "job": "17"}',
    ],
)
def test_a_lock_without_a_name_is_believed_too(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="another run uses this output folder"):
        lock_of(tmp_path).take()


@pytest.mark.parametrize("last", ["faster", "fastest"])
def test_whoever_is_faster_keeps_a_dead_owners_lock(
    tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Between the look at a dead owner's lock and its removal another run has taken it over, then perhaps a third."""
    path = leave_lock(tmp_path, replace(here, host="elsewhere"), touched_s_ago=DEAD_AFTER_S + 5)
    faster = json.dumps(asdict(replace(here, host="faster")))
    is_dead = Owner.is_dead

    def slow_look(_: Owner, __: Owner) -> bool:
        path.write_text(faster, encoding="utf-8")
        monkeypatch.setattr(Owner, "is_dead", is_dead)
        return True

    def slow_return(aside: Path, name: Path) -> None:
        if last == "fastest":
            path.write_text(kept, encoding="utf-8")
        link(aside, name)

    kept, link = json.dumps(asdict(replace(here, host=last))), os.link
    monkeypatch.setattr(run_lock, "DEAD_AFTER_S", 1e9)
    monkeypatch.setattr(Owner, "is_dead", slow_look)
    monkeypatch.setattr(os, "link", slow_return)
    with pytest.raises(ConfigError, match=f"on {last}, alive"):
        lock_of(tmp_path).take()
    assert path.read_text(encoding="utf-8") == kept
    assert not list(tmp_path.glob("*.dead"))


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why locks were lost; they are looked at all the time, and one that cannot be kept is believed, however long."""
    monkeypatch.setattr(run_lock, "_TOUCH_EVERY_S", 0.01)
    monkeypatch.setattr(run_lock, "DEAD_AFTER_S", 1e9)
    return []


def test_a_lock_that_another_run_took_is_told_and_not_given_back(
    tmp_path: Path, here: Owner, losses: list[str]
) -> None:
    """As after a minute's standstill."""
    lock = RunLock(tmp_path, losses.append)
    lock.take()
    other = leave_lock(tmp_path, replace(here, host="other"))
    assert eventually(lambda: bool(losses))
    assert losses == [f"{other}: is the lock of another run now (process {here.process} on other)"]
    lock.release()
    assert other.exists()


def test_a_file_system_that_does_not_answer_for_a_moment_is_no_loss(
    tmp_path: Path, losses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the lock cannot be read nor where it cannot be touched; after long it is."""
    failures = {"read": 0, "touch": 0}

    def failing(what: str) -> Callable[..., bytes]:
        def fail(*_: object) -> bytes:
            failures[what] += 1
            raise OSError(errno.ESTALE, "Stale file handle")

        return fail

    lock = RunLock(tmp_path, losses.append)
    lock.take()
    for what, owner, name in (("read", Path, "read_bytes"), ("touch", os, "utime")):
        with monkeypatch.context() as trouble:
            trouble.setattr(owner, name, failing(what))
            assert eventually(lambda what=what: failures[what] >= 3)
        assert losses == []
    monkeypatch.setattr(Path, "read_bytes", failing("read"))
    monkeypatch.setattr(run_lock, "DEAD_AFTER_S", 0.0)
    assert eventually(lambda: bool(losses))
    assert re.fullmatch(r".*run\.lock: could not be read and touched for 0 s \(.*Stale file handle\)", losses[0])
    monkeypatch.undo()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_was_removed_is_lost_after_a_while(
    tmp_path: Path, losses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may have the folder any moment."""
    lock = RunLock(tmp_path, losses.append)
    lock.take()
    (tmp_path / LOCK_NAME).unlink()
    time.sleep(0.05)
    assert losses == []
    monkeypatch.setattr(run_lock, "DEAD_AFTER_S", 0.0)
    assert eventually(lambda: bool(losses))
    assert "No such file" in losses[0]
    lock.release()


def test_a_full_disk_leaves_no_lock_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep others out for a minute."""
    open_file = os.open

    def open_on_a_full_disk(path: Path, flags: int, mode: int) -> int:
        os.close(open_file(path, flags, mode))  # a name needs no space
        return open_file("/dev/full", os.O_WRONLY)

    with monkeypatch.context() as full:
        full.setattr(os, "open", open_on_a_full_disk)
        with pytest.raises(OSError, match="No space left"):
            lock_of(tmp_path).take()
    assert list(tmp_path.iterdir()) == []
    lock_of(tmp_path).take()
