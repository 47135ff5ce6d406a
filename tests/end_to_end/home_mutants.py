"""Rows with one home each, with one broken rule: when gradients go home, what homes sum, and when copies leave."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.exchange import Arrival
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.exchange import Kind
from bagpipe_hpc.step.dense import passes
from bagpipe_hpc.step.sharing.home_batches import GroupExchange
from bagpipe_hpc.step.sharing.home_rows import HomeRows
from tests.end_to_end.faults import Breakage, Patch
from tests.end_to_end.planner_mutants import use_planner
from tests.unit.planning.lookahead import home_mutants as planners


def drop_late_gradients_of_others(patch: Patch) -> None:
    """A home applies later(x) with its own gradients only."""
    begin = HomeRows._begin_totals

    def sum_own(self: HomeRows, late: Any) -> None:
        for of_group in late.sums:
            of_group.arrival.rows[:] = 0
        begin(self, late)

    patch(HomeRows, "_begin_totals", sum_own)


def take_no_next_copies(patch: Patch) -> None:
    """A trainer reads the copies that it had two batches ago where the batch before has updated the rows."""

    def drop_next(self: HomeRows, _: object) -> None:
        coming, self._next = self._next, []
        self._wait([arrival for _, arrival in coming], "copies that are dropped")

    patch(HomeRows, "_take_next", drop_next)


def let_gradients_leave_early(patch: Patch) -> None:
    """Gradients of embeddings are taken, summed and sent before the backward pass has computed them."""

    @contextmanager
    def not_noticing(groups: Mapping[int, object], complete: Callable[[int], None]) -> Iterator[None]:
        for key in groups:
            complete(key)
        yield

    patch(passes, "noticing", not_noticing)


def lose_late_gradients(patch: Patch) -> None:
    """later(x) is exchanged and summed, and never applied."""
    patch(HomeRows, "_apply", lambda self, late: setattr(self, "_applied", late.batch))


def make_copies_before_late_updates(patch: Patch) -> None:
    """The rest of the copies for x hold what rows are when those of x are fetched; they leave in their turn."""
    expect, exchange = HomeRows.expect, HomeRows._exchange_copies
    made: dict[int, NDArray[np.float32]] = {}

    def make_early(self: HomeRows, plan: ReceivedPlan) -> None:
        expect(self, plan)
        for own in self._rest[-1].groups:
            slots = self._device.to_device(own.rows.rest_sent)
            made[id(own)] = self._caches[own.group].copies_of(slots).copy()

    def send_early(self: HomeRows, kind: Kind, own: GroupExchange, slots: NDArray[np.int32]) -> Arrival:
        if kind is not Kind.REST_COPIES:
            return exchange(self, kind, own, slots)
        flow = own.counts.flow(kind)
        rows = self._device.new_array((int(flow.source.sum()), self._caches[own.group].copy_width))
        return self._exchange.exchange(kind, made.pop(id(own)), flow, rows)

    patch(HomeRows, "expect", make_early)
    patch(HomeRows, "_exchange_copies", send_early)


COPIES_TOO_SOON = "copies are made before late updates"
HOME_MUTANTS: dict[str, Breakage] = {
    "homes drop late gradients of others": drop_late_gradients_of_others,
    "homes lose late gradients": lose_late_gradients,
    "copies of updated rows are not taken in": take_no_next_copies,
    COPIES_TOO_SOON: make_copies_before_late_updates,
    "gradients leave before they are complete": let_gradients_leave_early,
    "now computed from x + 2, with homes": use_planner(planners.NowFromTheBatchAfterNext),
    "homes retire one step early": use_planner(planners.RetiresEarly),
}
