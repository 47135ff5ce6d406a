"""Gradients of weights, late or at once, whose sums are waited for by layer: broken rules, and what breaks nothing."""

import torch

from bagpipe_hpc.models.sums import gradient_groups
from bagpipe_hpc.mpi.rows.exchange import Arrival
from bagpipe_hpc.step.dense.updates import DenseUpdates
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.home_rows import HomeRows
from tests.end_to_end.faults import Patch


def sum_in_small_groups(patch: Patch) -> None:
    """Small models have a sum for each weight, and wait for each where a layer reads it: nothing breaks."""
    patch(gradient_groups, "_GROUP_NUMBERS", 1)
    for name in ("_GROUP_SHARES", "_LAST_SHARES"):
        patch(gradient_groups, name, (0.0, 0.0))


def read_weights_before_their_sums(patch: Patch) -> None:
    """A layer reads its weights as they are, whatever is still on its way."""
    sum_in_small_groups(patch)
    patch(DenseUpdates, "before_use", lambda *_: None)


def update_before_all_gradients_are_here(patch: Patch) -> None:
    """A home sums what it has when its own gradients leave: the trainer that is first lacks those of the other.

    What comes late still has memory to come to: else MPI would write into that of somebody else.
    """
    begin_update, update = HomeRows.begin_update, HomeRows.update
    coming: list[Arrival] = []

    def update_at_once(self: HomeRows, batch: ReadyBatch, group: int, sums: torch.Tensor) -> None:
        begin_update(self, batch, group, sums)
        coming[:] = [now.arrival for _, _, now in self._begun]
        self._totals = [self._sums.begin(now, self._chains[0]) for _, _, now in self._begun]

    def update_and_wait(self: HomeRows, batch: ReadyBatch, step: int) -> None:
        update(self, batch, step)
        self._wait(coming, "gradients that nobody sums")

    patch(HomeRows, "begin_update", update_at_once)
    patch(HomeRows, "update", update_and_wait)


def send_copies_before_solo_rows_are_updated(patch: Patch) -> None:
    """A row that its home alone has used is updated behind its copies."""
    update, update_solo = HomeRows.update, HomeRows._update_solo

    def update_late(self: HomeRows, batch: ReadyBatch, step: int) -> None:
        begun = self._begun
        update(self, batch, step)
        self._begun = begun
        update_solo(self, step)
        self._begun = []

    patch(HomeRows, "_update_solo", lambda *_: None)
    patch(HomeRows, "update", update_late)


IN_SMALL_GROUPS = "weights' gradients last, in small groups"
FIRST_LAYERS = "first layers' gradients last, in small groups"
AT_ONCE, CLIPPED = "no gradients last, in small groups", "clipped, in small groups"
READ_TOO_SOON = "weights are read before their sums"
LATE_MUTANTS = {
    READ_TOO_SOON: read_weights_before_their_sums,
    "rows are updated before all gradients are here": update_before_all_gradients_are_here,
    "copies leave before solo rows are updated": send_copies_before_solo_rows_are_updated,
}
