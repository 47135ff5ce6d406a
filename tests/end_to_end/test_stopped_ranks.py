"""A rank that stands still without being gone: the others end the job after a while and say what they waited for.

A job that stands still as a whole goes on.
"""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.end_to_end.killed_runs import (
    ORACLE,
    RANKS,
    SERVER,
    SERVERS,
    TRAINER,
    Killed,
    has_trained,
    kill_one,
    suspend_all,
)

LIMIT_S = 8.0
END_S = LIMIT_S + 20
WAITED_FOR = {
    ORACLE: ("trainer [01]|server [01]", "the next plan of the oracle|a heartbeat from the oracle"),
    SERVER: (
        "trainer [01]|oracle 0",
        r"\d+ embedding rows from the servers|the servers to take \d+ embedding rows|trainer [01] to finish plan",
    ),
    TRAINER: (
        "trainer 0|oracle 0",
        "trainer [01] to finish plan|(gradients of )?the (delayed )?rows|the (.* of the )?other trainers",
    ),
}
"""For each rank that is stopped: who notices, and what it says that it waited for."""
NAMES = {ORACLE: "oracle 0", SERVER: "server 1", TRAINER: "trainer 1"}


@pytest.fixture(scope="module")
def stopped(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Killed]:
    """How jobs ended of which a rank was stopped, by that rank.

    A job starts when the one before trains; all of them wait at the same time.
    """
    folder = tmp_path_factory.mktemp("stopped")
    # Over messages: a server whose memory its trainers share is missed only when it has to save or to end.
    settings = [f"roles.servers={SERVERS}", "roles.same_host=transfers", f"train.timeout_s={LIMIT_S}"]

    def stop(rank: int) -> Killed:
        output = folder / str(rank)
        command = ["bagpipe", "train", config_path, f"train.output={output}", "train.epochs=60", *settings]
        ended = kill_one(RANKS, command, rank, lambda: has_trained(output, 25), number=signal.SIGSTOP)
        assert isinstance(ended, Killed), ended.stderr
        return ended

    jobs = {}
    with ThreadPoolExecutor() as threads:
        for rank in WAITED_FOR:
            jobs[rank] = threads.submit(stop, rank)
            while not (has_trained(folder / str(rank), 25) or jobs[rank].done()):
                time.sleep(0.1)
    return {rank: job.result() for rank, job in jobs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("rank", WAITED_FOR, ids=["oracle", "server", "trainer"])
def test_a_stopped_rank_ends_the_job(rank: int, stopped: dict[int, Killed]) -> None:
    ended = stopped[rank]
    assert ended.finished.returncode not in (0, 124, 137), ended.finished.stderr
    assert ended.end_s < END_S
    assert ended.left == ()
    who, what = WAITED_FOR[rank]
    silent = rf"of 5 ranks these have been silent: {NAMES[rank]} on \S+ for \d+ s$"
    said = (
        rf"(?m)^bagpipe: ({who}) \(world rank \d\) on \S+ failed: waited 8 s for ({what}).*a rank is stopped.*{silent}"
    )
    assert re.search(said, ended.finished.stderr), ended.finished.stderr
    blamed = "a heartbeat from the oracle" in ended.finished.stderr
    assert rank == ORACLE or not blamed, ended.finished.stderr


@pytest.mark.slow
def test_a_suspended_job_goes_on_and_hears_signals(config_path: Path, tmp_path: Path) -> None:
    """It stands still for longer than a rank may be silent."""
    settings = [f"roles.servers={SERVERS}", "roles.same_host=transfers", "train.timeout_s=3", "train.epochs=600"]
    command = ["bagpipe", "train", config_path, f"train.output={tmp_path}", *settings]
    ended = suspend_all(RANKS, command, lambda: has_trained(tmp_path, 25), standstill_s=6.0)
    assert ended.returncode == 0, ended.stderr
    assert "asked to stop by SIGUSR1" in ended.stderr
    assert list((tmp_path / "checkpoints").glob("step-*"))
