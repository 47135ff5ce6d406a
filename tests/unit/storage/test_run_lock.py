"""One run at a time in an output folder; the lock of a dead run is taken over, that of a living one never."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage import run_lock
from bagpipe_hpc.storage.run_lock import DEAD_AFTER_S, LOCK_NAME, Owner, RunLock


def lock_of(folder: Path) -> RunLock:
    return RunLock(folder, lambda: None)


def leave_lock(folder: Path, owner: Owner, *, touched_s_ago: float = 0.0) -> Path:
    """What a run that was killed left behind."""
    path = folder / LOCK_NAME
    path.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    touched_s = time.time() - touched_s_ago
    os.utime(path, (touched_s, touched_s))
    return path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Owner:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
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
    owner = Owner(here.host, living_process, run_lock._start_of(living_process), "")
    path = leave_lock(tmp_path, owner)
    before = path.read_bytes()
    host = re.escape(here.host.partition(" ")[0])
    with pytest.raises(ConfigError, match=rf"another run uses .* \(process {living_process} on {host}, alive 0 s ago"):
        lock_of(tmp_path).take()
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [LOCK_NAME]


def test_an_owner_on_another_host_is_believed_for_a_minute(tmp_path: Path, here: Owner) -> None:
    elsewhere = replace(here, host="elsewhere")
    leave_lock(tmp_path, elsewhere, touched_s_ago=DEAD_AFTER_S / 2)
    with pytest.raises(ConfigError, match=r"on elsewhere, alive 30 s ago\).*wait 60 s or remove this file"):
        lock_of(tmp_path).take()
    leave_lock(tmp_path, elsewhere, touched_s_ago=DEAD_AFTER_S + 5)
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
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with pytest.raises(ConfigError, match="on node1, Slurm job 17"):
        lock_of(tmp_path).take()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    lock_of(tmp_path).take()


@pytest.mark.parametrize("text", ["", "[1]", '{"host": 1, "process": "x", "started": 0, "job": ""}', "nonsense"])
def test_a_lock_without_a_name_is_believed_too(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="another run uses this output folder"):
        lock_of(tmp_path).take()


def test_whoever_is_faster_keeps_a_dead_owners_lock(
    tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a dead owner's lock and its removal another run has taken it over."""
    path = leave_lock(tmp_path, replace(here, host="elsewhere"), touched_s_ago=DEAD_AFTER_S + 5)
    faster = json.dumps(asdict(replace(here, host="faster")))
    is_dead = Owner.is_dead

    def slow_look(_: Owner, __: Owner) -> bool:
        path.write_text(faster, encoding="utf-8")
        monkeypatch.setattr(Owner, "is_dead", is_dead)
        return True

    monkeypatch.setattr(run_lock, "DEAD_AFTER_S", 1e9)
    monkeypatch.setattr(Owner, "is_dead", slow_look)
    with pytest.raises(ConfigError, match="on faster, alive"):
        lock_of(tmp_path).take()
    assert path.read_text(encoding="utf-8") == faster


def test_a_lock_that_another_run_took_is_told_and_not_given_back(
    tmp_path: Path, here: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a minute's standstill."""
    monkeypatch.setattr(run_lock, "_TOUCH_EVERY_S", 0.01)
    told: list[bool] = []
    lock = RunLock(tmp_path, lambda: told.append(True))
    lock.take()
    time.sleep(0.05)
    assert not told
    other = leave_lock(tmp_path, replace(here, host="other"))
    for _ in range(200):
        if told:
            break
        time.sleep(0.01)
    assert told == [True]
    lock.release()
    assert other.exists()
