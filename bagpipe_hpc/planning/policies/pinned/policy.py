"""`pinned`: the look-ahead rule, but a plan's hottest rows stay with the trainers until the segment ends.

Which rows these are says a plan of tables (`bagpipe place`), such as RecShard's (ASPLOS 2022). A pinned row is fetched
when it is first used. It is never dead, so it is never private: its gradients are summed, now or behind the next batch,
and it is written back with the segment's closing plan. Everything else is as with `bagpipe`.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.placements.settings import made_file
from bagpipe_hpc.rows.placements.table_plan import read_plan


class PinnedPolicy(LookaheadPolicy):
    """Keeps a plan's rows for a whole segment; it plans in NumPy, for rows that are replicated or have one home."""

    is_native = False

    @cached_property
    def pinned(self) -> Bools:
        """Which rows stay, bool `[rows of all tables]`.

        Raises:
            BagpipeError: no file is named, or it is no plan of these tables.
        """
        facts = self.facts
        plan = read_plan(made_file("policy.plan", self.settings.plan))
        found = np.zeros(facts.total_rows, dtype=np.bool_)
        for name, first, rows in zip(
            facts.table_names, facts.table_offsets.tolist(), np.diff(facts.table_offsets).tolist(), strict=False
        ):
            plan.of(name, rows)
            found[first + plan.pinned_rows(name)] = True
        return found

    @property
    def rule(self) -> Callable[..., Planner]:
        """The look-ahead rule for the way that rows are shared, but for the pinned rows."""
        if self.facts.sharing == "home":
            return partial(PinnedHomePlanner, grid=self.facts.grid, pinned=self.pinned)
        return partial(PinnedPlanner, pinned=self.pinned)

    def expected_slots(self, beginning: CacheSlots) -> CacheSlots:
        """Those of `bagpipe`, and one for each pinned row: it comes sooner or later, and stays."""
        expected, facts = super().expected_slots(beginning), self.facts
        rows = int(self.pinned.sum())
        if facts.sharing == "home":
            return expected._replace(private=min(facts.total_rows, expected.private + rows))
        return expected._replace(shared=min(facts.total_rows, expected.shared + rows))

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """As of `bagpipe`, and the list of pinned rows."""
        return super().least_bytes(window, most_batches) + self.pinned.nbytes


class PinnedPlanner(LookaheadPlanner):
    """Replicated rows; the arguments are those of `LookaheadPlanner`.

    Args:
        arguments: as there.
        pinned: which rows stay, bool `[rows]`.
        settings: as there.
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
