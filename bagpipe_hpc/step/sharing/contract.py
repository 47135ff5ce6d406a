"""How trainers keep the rows that several of them use: what a step and a mover ask of it, and what all ways have."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trace import Trace


class RowSharing(Protocol):
    """Sums row gradients over the trainers and updates the rows, as `cache.sharing` says.

    The compute thread calls the methods of the first part for one batch after the other, the mover those of the second.
    """

    # Called by the compute thread.

    def start(self, batch: ReadyBatch) -> None:
        """Wait until the rows of a batch may be read."""

    def advance_delayed(self) -> None:
        """Move on what was delayed, between the passes of a step. Never waits."""

    def begin_update(self, batch: ReadyBatch, group: int, sums: Tensor) -> None:
        """Let gradients leave that other trainers wait for; while the backward pass goes on, where it can be.

        Waits for no other trainer.

        Args:
            batch: whose gradients these are.
            group: of tables; once each, in their order.
            sums: of the slice, for the rows of the group, float32 `[U, D]`.
        """

    def update_early(self, batch: ReadyBatch, step: int) -> None:
        """Do what can be done of `update` while the backward pass goes on. Never waits; arguments as there."""

    def update(self, batch: ReadyBatch, step: int) -> None:
        """Update the rows of a batch whose groups have all been begun, some of them behind the next one.

        Args:
            batch: as for `begin_update`.
            step: number of the step, from 1 over the whole run.
        """

    def finish_delayed(self) -> None:
        """Apply what is left, or see that it will be before rows are written back."""

    def only_read(self, batch: ReadyBatch) -> None:
        """Note that a batch of an evaluation has been computed."""

    # Called by the mover.

    def expect(self, plan: ReceivedPlan) -> None:
        """Learn that the rows which a batch fetches are in the cache; batches come in their order."""

    def advance(self) -> bool:
        """Move on what is under way; whether anything is. Never waits.

        With nothing under way no answer of `is_ready` and `may_retire` changes before the compute thread has done
        something, and rung.
        """

    def awaited(self) -> list[Awaited]:
        """What `advance` goes on behind, until it is called again."""

    def is_ready(self, plan: ReceivedPlan) -> bool:
        """Whether the compute thread may have a batch that is expected."""

    def may_retire(self, plan: ReceivedPlan) -> bool:
        """Whether the rows that leave with a plan's group have all their updates."""

    def restart(self) -> None:
        """Begin a new segment; nothing of the last one is left."""


class RowUpdates:
    """Updates rows and their versions, and measures waits; both threads may use it, for rows of their own.

    Args:
        parts: rows and their optimizer.
        stats: of the compute thread.
        trace: this rank's timeline.
    """

    def __init__(self, parts: ComputeParts, stats: StepStats, trace: Trace) -> None:
        self._parts = parts
        self._stats = stats
        self._trace = trace

    def apply(self, group: int, slots: Tensor, gradients: Tensor, step: int) -> None:
        """Update rows of a group of tables, in the compute thread, by their sums: arguments as for `update_rows`."""
        with self._trace.span("update rows", rows=slots.numel()):
            self.apply_behind(group, slots, gradients, step)

    def apply_behind(self, group: int, slots: Tensor, gradients: Tensor, step: int) -> None:
        """As `apply`, in the mover, whose time is not the step's."""
        self._parts.update_rows(group, slots, gradients, step)
        self._parts.caches[group].set_version(slots, step)

    @contextmanager
    def waiting(self, what: str, rows: int) -> Iterator[None]:
        """The body waits, in the compute thread, for other trainers."""
        with self._stats.timed("wait_reductions_s"), self._trace.span(what, rows=rows):
            yield

    def travelled(self, what: str, since_s: float, rows: int) -> None:
        """Draw that rows were on their way between trainers until now.

        Args:
            what: they are, as the timeline names it.
            since_s: when they left, by `time.perf_counter`.
            rows: their number.
        """
        self._trace.add(what, since_s, time.perf_counter(), "rows between trainers", rows=rows)
