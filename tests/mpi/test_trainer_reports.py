"""What trainers tell of their steps."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.waiting import nothing_to_watch
from bagpipe_hpc.roles.trainer.reports import TrainerReports
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace

TIMEOUT_S = 30.0


class Told(Record):
    """Keeps the intervals and losses that the first trainer tells of."""

    def __init__(self) -> None:
        self.intervals: list[list[StepStats]] = []
        self.losses: list[float] = []

    def progress(self, *told: Any, **_: Any) -> None:
        _, _, trainers, loss, _ = told
        self.intervals.append([trainers[number] for number in range(len(trainers))])
        self.losses.append(loss)


@pytest.mark.mpi(min_size=2)
def test_waiting_for_others_to_report_counts_for_the_next_interval(comm: MPI.Comm) -> None:
    """Else samples/s would be those of a trainer that runs ahead."""
    rank, trainers = comm.Get_rank(), comm.Get_size()
    told, stats = Told(), StepStats()
    comms = cast(Communicators, SimpleNamespace(trainers=comm, layout=SimpleNamespace(trainers=trainers)))
    record = told if rank == 0 else None
    reports = TrainerReports(comms, record, stats, Trace(enabled=False), TIMEOUT_S, nothing_to_watch)
    for step in (1, 2):
        stats.steps, stats.samples = step, 8 * step
        reports.progress(step, 0, loss=float(rank), rates={})
    if rank == 0:
        assert told.losses == [sum(range(trainers))] * 2
        first, second = told.intervals
        assert [(own.steps, own.samples) for own in first + second] == [(1, 8)] * 2 * trainers
        assert {own.total_s for own in first} == {0.0}
        assert all(own.total_s >= own.wait_reductions_s > 0 for own in second)
