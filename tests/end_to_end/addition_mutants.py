"""Breaks what trainers do that add their changes to each other's rows, as under the policy `het`."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.plan.batch_plan import Additions, BatchPlan, GroupPlan
from bagpipe_hpc.planning.addition_order import in_rank_order
from bagpipe_hpc.roles import oracle
from bagpipe_hpc.roles.mover.row_traffic import Based, FetchedRows, RowTraffic
from bagpipe_hpc.roles.mover.write_backs import WriteBacks
from tests.end_to_end.faults import Breakage, Patch

LOOKS_UP_LATE = "one trainer looks up late"


def put_what_is_to_be_added(patch: Patch) -> None:
    """Each trainer puts the rows that it changed, so that one overwrites the change of the other."""

    def put(self: RowTraffic, additions: Additions) -> PendingRows:
        return self._window.start_put(additions.rows, self._gather(additions.slots))

    patch(RowTraffic, "add", put)


def forget_changes_of_rows_that_come_anew(patch: Patch) -> None:
    """A row that is fetched anew is what the servers have, whatever this trainer has not added yet."""
    keep = RowTraffic.keep

    def keep_as_new(self: RowTraffic, fetched: FetchedRows) -> None:
        parts = (np.concatenate(part) for part in zip(fetched.new, fetched.merged, strict=True))
        keep(self, replace(fetched, new=Based(*parts), merged=Based(*(part[:0] for part in fetched.merged))))

    patch(RowTraffic, "keep", keep_as_new)


def add_in_reverse_order(patch: Patch) -> None:
    """The last trainer adds first."""

    def reversed_order(plan: BatchPlan) -> BatchPlan:
        turned = in_rank_order(replace(plan, trainers=tuple(reversed(plan.trainers))))
        return replace(turned, trainers=tuple(reversed(turned.trainers)))

    patch(oracle, "in_rank_order", reversed_order)


def look_up_late(patch: Patch) -> None:
    """The last trainer begins to fetch rows when others may have done their step: nothing breaks."""
    start_fetch = RowTraffic.start_fetch

    def start_late(self: RowTraffic, plans: Sequence[GroupPlan]) -> FetchedRows:
        time.sleep(0.03)
        return start_fetch(self, plans)

    if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
        patch(RowTraffic, "start_fetch", start_late)


def add_before_others_look_up(patch: Patch) -> None:
    """A trainer adds what it has changed as soon as it has done so."""
    start = WriteBacks.start

    def add_at_once(self: WriteBacks) -> bool:
        has_begun = start(self)
        if has_begun:
            self._start_round(self._under_way[0])
        return has_begun

    look_up_late(patch)
    patch(WriteBacks, "start", add_at_once)


ADDITION_MUTANTS: dict[str, Breakage] = {
    "changes are put": put_what_is_to_be_added,
    "changes are forgotten": forget_changes_of_rows_that_come_anew,
    "the last trainer adds first": add_in_reverse_order,
    "others have not looked up": add_before_others_look_up,
}
