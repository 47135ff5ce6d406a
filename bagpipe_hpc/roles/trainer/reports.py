"""What trainers gather for the first of them to tell: progress, the summary, and whose dense weights have drifted."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_for_barrier
from bagpipe_hpc.step.dense.replicas import Digests, require_equal_replicas
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.server_load import ServerLoad, added_up
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps, steps_as_row

_Value = TypeVar("_Value")


class TrainerReports:
    """Gathers at the first trainer, which tells of it. Every method is collective over: the trainers.

    Args:
        comms: this rank's communicators.
        record: of the run, on the first trainer; None on others.
        stats: of this trainer's steps; they are added up elsewhere, and read here.
        trace: this rank's timeline.
        timeout_s: longest wait for the other trainers.
        watch: raises what ended this trainer's mover, if anything did.
    """

    def __init__(
        self,
        comms: Communicators,
        record: Record | None,
        stats: StepStats,
        trace: Trace,
        timeout_s: float,
        watch: Callable[[], None],
    ) -> None:
        self._comms = comms
        self._record = record
        self._stats = stats
        self._reported = stats.copy()
        self._trace = trace
        self._timeout_s = timeout_s
        self._watch = watch

    def progress(self, step: int, epoch: int, loss: float, rates: dict[str, float]) -> None:
        """Tell of the steps since the last report; what trainers wait for each other here counts for the next ones.

        Only the first trainer waits for all: many numbers of each, as they are, travel up a tree.

        Args:
            step: steps done.
            epoch: number of the epoch, from 0.
            loss: sum of this trainer's losses in these steps; those of all trainers are added in rank order.
            rates: of learning in this step, by name.
        """
        interval = self._stats.since(self._reported)
        self._reported = self._stats.copy()
        comm = self._comms.trainers
        own = np.append(steps_as_row(interval), loss)
        told = np.empty((comm.Get_size() if self._record else 0, own.size))
        with self._stats.timed("total_s"), self._stats.timed("wait_reductions_s"):
            gathered = comm.Igather(own, told if self._record else None, root=0)
            wait_for_all([gathered], "the losses of the other trainers", self._timeout_s, self._watch)
        if self._record:
            mean_loss = sum(told[:, -1].tolist()) / max(1, interval.steps)
            self._record.progress(step, epoch, TrainerSteps(told[:, :-1]), mean_loss, rates)
            speed = {"samples_per_s": interval.samples_per_s, "hit_rate": interval.hit_rate}
            self._trace.values |= {"loss": mean_loss, **rates, **speed}

    def require_equal_replicas(self, step: int, digests: Callable[[], Digests], *, are_new: bool = False) -> None:
        """Compare the dense half over the trainers; a single one has nothing to compare.

        Args:
            step: steps done.
            digests: makes those of this trainer's dense half.
            are_new: whether it has not trained yet.

        Raises:
            ConsistencyError: on the first trainer, if they differ: it ends the job before servers hear of a checkpoint.
        """
        if self._comms.layout.trainers == 1:
            return
        if parts := self._gather("the digests of the dense weights", (self._comms.name, digests())):
            names, replicas = zip(*parts, strict=True)
            require_equal_replicas(step, names, replicas, are_new=are_new)

    def summary(self, moved: list[ServerLoad], details: Callable[[], dict[str, Any]], *, is_complete: bool) -> None:
        """Tell how the run went.

        Args:
            moved: what this trainer has moved at each server.
            details: makes what else there is to say, on the first trainer.
            is_complete: whether all steps were done that were to be.
        """
        parts = self._gather("the times", (self._stats.per_step(), moved))
        if self._record and parts:
            means, loads = map(list, zip(*parts, strict=True))
            with self._record as record:
                if is_complete:
                    of_servers = {"servers": self._comms.layout.servers, "moved_at_servers": added_up(loads)}
                    record.summary(means, self._stats, {**of_servers, **details()})
                else:
                    record.stopped()

    def _gather(self, what: str, value: _Value) -> list[_Value] | None:
        """The values of all trainers, on the first one.

        The barrier waits with a limit and without spinning, so that the gathering itself is short.
        """
        what = f"{what} of the other trainers"
        wait_for_barrier(self._comms.trainers, what, self._timeout_s, self._watch)
        with TimeLimit(what, self._timeout_s):
            return self._comms.trainers.gather(value, root=0)
