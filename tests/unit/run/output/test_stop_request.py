"""A run is asked to stop by a file or a signal; only the oracle listens, and afterwards signals do what they did."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.run.output import stop_request
from bagpipe_hpc.run.output.stop_request import STOP_NAME, StopRequest, request_stop
from bagpipe_hpc.storage.run_lock import LOCK_NAME, RunLock


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_request, "_LOOK_EVERY_S", 0.0)


@pytest.fixture(autouse=True)
def signals_are_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    assert signal.getsignal(signal.SIGUSR1) == before
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@contextmanager
def held(output: Path) -> Iterator[None]:
    """A run has the folder."""
    lock = RunLock(output, lost=lambda _: None)
    lock.take()
    yield
    lock.release()


def wait_until_asked(stop: StopRequest) -> bool:
    for _ in range(500):
        if stop.is_asked():
            return True
        time.sleep(0.01)
    return False


def test_a_run_that_is_not_asked_goes_on(tmp_path: Path) -> None:
    with StopRequest(tmp_path, listens=True) as stop:
        assert not stop.is_asked()


def test_a_file_stops_the_run_and_goes_when_that_has_stopped(tmp_path: Path) -> None:
    with StopRequest(tmp_path, listens=True) as stop:
        with held(tmp_path):
            request_stop(tmp_path)
            assert stop.is_asked()
        stop.answer()
        assert not (tmp_path / STOP_NAME).exists()


def test_a_request_to_an_earlier_run_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path):
        request_stop(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with held(tmp_path), StopRequest(tmp_path, listens=True) as stop:
        assert not stop.is_asked()
        request_stop(tmp_path)
        assert stop.is_asked()


def test_the_dead_start_of_a_job_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is still there when the job has been requeued and the new start has not come so far."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with held(tmp_path):
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        with pytest.raises(ConfigError, match="no run is in this folder"):
            request_stop(tmp_path)


def test_a_run_of_another_host_that_has_long_been_silent_is_not_asked(tmp_path: Path) -> None:
    """It left its lock when it was killed, and would never answer."""
    lock = {"host": "far", "process": 1, "started": 1, "job": "", "restarts": 0}
    (tmp_path / LOCK_NAME).write_text(json.dumps(lock), encoding="utf-8")
    request_stop(tmp_path)
    os.utime(tmp_path / LOCK_NAME, (0, 0))
    with pytest.raises(ConfigError, match="no run is in this folder"):
        request_stop(tmp_path)


def test_signals_stop_the_run_however_often(tmp_path: Path) -> None:
    with StopRequest(tmp_path, listens=True) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert wait_until_asked(stop)


def test_what_a_suspended_process_is_given_is_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython gives back a struct that nobody has filled; the thread goes on listening."""
    unfilled, listen = [SimpleNamespace(si_signo=893696832)], signal.sigtimedwait
    monkeypatch.setattr(signal, "sigtimedwait", lambda *asked: unfilled.pop() if unfilled else listen(*asked))
    with StopRequest(tmp_path, listens=True) as stop:
        while unfilled:
            time.sleep(0.01)
        assert not stop.is_asked()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert wait_until_asked(stop)


def test_other_ranks_ignore_signals(tmp_path: Path) -> None:
    with StopRequest(tmp_path, listens=False) as stop:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not stop.is_asked()


def test_within_slurm_a_preemption_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with StopRequest(tmp_path, listens=True) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_until_asked(stop)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run is in this folder"):
        request_stop(tmp_path)
