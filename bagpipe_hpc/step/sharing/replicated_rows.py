"""Rows that every trainer has: all sum the gradients of the same rows and update them (`cache.sharing=replicated`)."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.contract import RowUpdates
from bagpipe_hpc.step.sharing.row_sums import PendingRowSums, RowSums


@dataclass
class DelayedUpdate:
    """later(x): rows of a group of tables whose reduction was started in step x and is applied in step x + 1."""

    group: int
    slots: Tensor
    gradients: PendingRowSums
    step: int


class ReplicatedRows:
    """The `RowSharing` of rows whose updates all trainers make.

    Args:
        updates: applies them.
        row_sums: sums row gradients over the trainers.
    """

    def __init__(self, updates: RowUpdates, row_sums: RowSums) -> None:
        self._updates = updates
        self._row_sums = row_sums
        self._begun: list[tuple[_GroupRows, PendingRowSums]] = []
        self._delayed: list[DelayedUpdate] = []

    def start(self, batch: ReadyBatch) -> None:
        """Nothing: rows are read as the mover has brought them."""

    def advance_delayed(self) -> None:
        """Move later(x - 1) on."""
        for delayed in self._delayed:
            delayed.gradients.advance()

    def begin_update(self, batch: ReadyBatch, group: int, sums: Tensor) -> None:
        """Start reducing now(x) of a group of tables."""
        slots, shared = batch.inputs.look_ups[group].slots[: len(sums)], batch.plan.groups[group].shared
        rows = _GroupRows(group, slots, sums, shared.now_slots.size, shared.later_slots.size)
        self._begun.append((rows, self._row_sums.start(rows.sums[rows.is_now])))

    def update_early(self, batch: ReadyBatch, step: int) -> None:
        """Nothing: no other trainer waits for what this one updates."""

    def update(self, batch: ReadyBatch, step: int) -> None:
        """Wait for now(x); finish later(x - 1); update those and the private rows; start reducing later(x)."""
        groups, reductions = zip(*self._begun, strict=True)
        self._begun = []
        with self._updates.waiting("reduce now", sum(rows.now for rows in groups)):
            what = f"the rows that batch {batch.plan.batch + 1} needs"
            totals = [reduction.wait(what) for reduction in reductions]
        for rows, total in zip(groups, totals, strict=True):
            self._updates.apply(rows.group, rows.slots[rows.is_now], total, step)
        self.finish_delayed()
        for rows in groups:
            own_sums = self._row_sums.rounded(rows.sums[rows.is_private])
            self._updates.apply(rows.group, rows.slots[rows.is_private], own_sums, step)
        self._delayed = [
            self.start_delayed(rows.group, rows.slots[rows.is_later], rows.sums[rows.is_later], step) for rows in groups
        ]

    def start_delayed(self, group: int, slots: Tensor, sums: Tensor, step: int) -> DelayedUpdate:
        """Start reducing later(x) of a group of tables, so that it runs behind the next step."""
        return DelayedUpdate(group, slots, self._row_sums.start(sums), step)

    def finish_delayed(self) -> None:
        """Apply later(x - 1), if step x has not done so: a row may be retired or read only after that."""
        all_delayed, self._delayed = self._delayed, []
        for delayed in all_delayed:
            with self._updates.waiting("reduce later", delayed.slots.numel()):
                total = delayed.gradients.wait(f"the delayed rows of step {delayed.step}")
            self._updates.apply(delayed.group, delayed.slots, total, delayed.step)

    def only_read(self, batch: ReadyBatch) -> None:
        """Nothing: an evaluation delays nothing."""

    def expect(self, plan: ReceivedPlan) -> None:
        """Nothing: all rows of a batch are fetched."""

    def advance(self) -> bool:
        """Move the sums on that the compute thread has started."""
        return self._row_sums.advance()

    def awaited(self) -> list[Awaited]:
        """What these sums go on behind."""
        return self._row_sums.awaited()

    def is_ready(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Whether a batch is ready: as soon as its rows are fetched."""
        return True

    def may_retire(self, plan: ReceivedPlan) -> bool:  # noqa: ARG002
        """Whether a group may leave: the compute thread says so when it has applied everything."""
        return True

    def restart(self) -> None:
        """Nothing to forget."""


class _GroupRows(NamedTuple):
    """What a step updates of one group of tables: slots `[U]` and the sums of a slice's gradients, `[U, D]`."""

    group: int
    slots: Tensor
    sums: Tensor
    now: int
    later: int

    @property
    def is_now(self) -> slice:
        return slice(0, self.now)

    @property
    def is_later(self) -> slice:
        return slice(self.now, self.now + self.later)

    @property
    def is_private(self) -> slice:
        return slice(self.now + self.later, None)
