"""All ranks settle one way to sum dense gradients, and the oracle says what is to be known of it."""

import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.preparation.settling import trainer_compute
from bagpipe_hpc.preparation.settling.dense_sums import settle_dense_sums
from bagpipe_hpc.preparation.settling.trainer_compute import trainer_cores
from bagpipe_hpc.step.dense.sums_choice import TrainerCores


def run_of(dense_sums: str) -> Any:
    """A run, as far as it is asked; with its sums settled it is the name that they have."""
    train = SimpleNamespace(dense_sums=dense_sums, timeout_s=10.0, device="cpu")
    return SimpleNamespace(config=SimpleNamespace(train=train), with_dense_sums=lambda name: name)


def ranks_with(role: Role, trainers: int, *, grouped: bool) -> Any:
    """An oracle, a server and so many trainers on one host with two cores, seen by a rank that is no trainer."""
    found = TrainerCores(0, frozenset({0, 1}), 1, has_gpu=False, grouped=grouped)
    return SimpleNamespace(role=role, world=SimpleNamespace(allgather=lambda own: [own, None, *[found] * trainers]))


@pytest.mark.parametrize(
    ("dense_sums", "role", "grouped", "warnings"),
    [
        ("horovod", Role.ORACLE, True, 1),
        ("horovod", Role.ORACLE, False, 0),
        ("horovod", Role.SERVER, True, 0),
        ("mpi", Role.ORACLE, True, 0),
    ],
)
def test_the_oracle_warns_of_horovod_among_more_trainers_than_cores(
    caplog: pytest.LogCaptureFixture, dense_sums: str, role: Role, *, grouped: bool, warnings: int
) -> None:
    with caplog.at_level(logging.INFO):
        settled: Any = settle_dense_sums(run_of(dense_sums), ranks_with(role, 3, grouped=grouped))
    assert settled == dense_sums
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == warnings
    assert all("train.dense_sums=auto" in text for text in told)


@pytest.mark.parametrize("grouped", [True, False])
def test_a_trainer_says_whether_its_host_groups_sessions(monkeypatch: pytest.MonkeyPatch, *, grouped: bool) -> None:
    monkeypatch.setattr(trainer_compute, "are_sessions_grouped", lambda: grouped)
    comms: Any = SimpleNamespace(hosts=[4, 7], world=SimpleNamespace(Get_rank=lambda: 1), gpu_number=None)
    found = trainer_cores(run_of("horovod"), comms)
    assert found.host == 7
    assert found.cores == os.sched_getaffinity(0)
    assert found.grouped is grouped
