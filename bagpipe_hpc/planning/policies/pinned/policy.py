"""`pinned`: the look-ahead rule, but a plan's hottest rows stay with the trainers until the segment ends.

A plan of tables (`bagpipe place`), such as RecShard's (ASPLOS 2022), says which rows these are. A pinned row is fetched
when it is first used. It is never dead, so it is never private: its gradients are summed, now or behind the next batch,
and it is written back with the segment's closing plan. Everything else is as with the policy `bagpipe`.

With `cache.sharing = "tiered"`, every trainer holds a plan's pinned rows, one trainer of each host holds its hosted
rows, and all others have one home (FlexShard).
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.planning.batch_rows import NO_ROWS, Bools, Int64s, LoadedBatch
from bagpipe_hpc.planning.homes.tiers import RowTiers, TieredExchange
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.placements.settings import made_file
from bagpipe_hpc.rows.placements.table_plan import read_plan

_TIER_BYTES = 9
"""Memory for the tier, holder and slot of a row."""


class PinnedPolicy(LookaheadPolicy):
    """Keeps a plan's rows for a whole segment; it plans in NumPy, however rows are shared."""

    sharings = ("replicated", "home", "tiered")

    is_native = False

    @cached_property
    def tiers(self) -> RowTiers:
        """Which rows stay with all trainers, and which with a trainer of each host.

        Raises:
            BagpipeError: no file is named, or it is not a plan of these tables, or it is for another number of hosts.
        """
        facts = self.facts
        plan = read_plan(made_file("policy.plan", self.settings.plan))
        found: tuple[list[Int64s], list[Int64s]] = [], []
        for name, rows in zip(facts.table_names, np.diff(facts.table_offsets).tolist(), strict=True):
            plan.of(name, rows)
        firsts = facts.table_offsets[:-1].tolist()
        for first, kept in zip(firsts, plan.kept_rows(facts.table_names), strict=True):
            for of_tier, own in zip(found, kept, strict=True):
                of_tier.append(first + own)
        everywhere, hosted = (np.concatenate((NO_ROWS, *of_tier)) for of_tier in found)
        hosts = plan.trainer_hosts if hosted.size else 1
        if hosted.size and facts.sharing != "tiered":
            cure = f"{plan.source} holds {hosted.size} rows once a host; use tiered, or place with once_a_host = false"
            raise SettingError("cache.sharing", facts.sharing, cure)
        if facts.trainers % hosts:
            cure = f"is for {hosts} hosts with as many trainers each, and there are {facts.trainers} trainers in all"
            cure += f"; start a multiple of {hosts}"
            raise SettingError("policy.plan", str(plan.source), cure)
        return RowTiers(everywhere, hosted, facts.trainers // hosts)

    @property
    def trainers_of_host(self) -> int:
        """Trainers of a host in the plan, where rows are held once a host; else 0."""
        return self.tiers.of_host if self.facts.sharing == "tiered" and self.tiers.hosted.size else 0

    @cached_property
    def pinned(self) -> Bools:
        """Which rows stay, bool `[rows of all tables]`; errors as for `tiers`."""
        found = np.zeros(self.facts.total_rows, dtype=np.bool_)
        found[self.tiers.everywhere] = found[self.tiers.hosted] = True
        return found

    @property
    def rule(self) -> Callable[..., Planner]:
        """The planner of the look-ahead rule with pinned rows, for the way in which rows are shared."""
        if self.facts.sharing == "tiered":
            return partial(PinnedTieredPlanner, grid=self.facts.grid, tiers=self.tiers, pinned=self.pinned)
        if self.facts.sharing == "home":
            return partial(PinnedHomePlanner, grid=self.facts.grid, pinned=self.pinned)
        return partial(PinnedPlanner, pinned=self.pinned)

    def expected_slots(self, beginning: CacheSlots) -> CacheSlots:
        """As `bagpipe`, and a slot for each pinned row, which comes sooner or later, and stays."""
        facts = self.facts
        if facts.sharing == "tiered":  # pinned and hosted rows have their slots from the start
            fixed = self.tiers.slots
            of_others = super().expected_slots(beginning._replace(private=beginning.private - fixed))
            return of_others._replace(private=min(facts.total_rows, of_others.private + fixed))
        expected = super().expected_slots(beginning)
        rows = int(self.pinned.sum())
        if facts.sharing == "home":
            return expected._replace(private=min(facts.total_rows, expected.private + rows))
        return expected._replace(shared=min(facts.total_rows, expected.shared + rows))

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """As `bagpipe`, and the flags of pinned rows."""
        of_tiers = _TIER_BYTES * self.facts.total_rows if self.facts.sharing == "tiered" else 0
        return super().least_bytes(window, most_batches) + self.pinned.nbytes + of_tiers


class PinnedPlanner(LookaheadPlanner):
    """Replicated rows, of which the pinned ones stay.

    Args:
        arguments: as for `LookaheadPlanner`.
        pinned: which rows stay, bool `[rows]`.
        settings: as for `LookaheadPlanner`.
    """

    def __init__(self, *arguments: Any, pinned: Bools, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._pinned = pinned

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:
        """Rows that no later batch of the window uses, and that are not pinned."""
        dead: Bools = super().is_dead(number, batch) & ~self._pinned[batch.unique]
        return dead


class PinnedHomePlanner(PinnedPlanner, HomePlanner):
    """Rows with one home: a pinned row stays at its home."""


class PinnedTieredPlanner(PinnedPlanner, TieredExchange, HomePlanner):
    """Rows in tiers: those that several trainers hold are the pinned ones.

    Args:
        arguments: as for `PinnedPlanner`.
        tiers: which rows several trainers hold.
        settings: as for `PinnedPlanner`.
    """
