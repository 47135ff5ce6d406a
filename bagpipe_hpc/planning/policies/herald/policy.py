"""The policy `herald` (APNet 2022; NSDI 2024), with exact rules: docs/policies.md says what they are."""

import numpy as np

from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.herald.assignment import ByLocation
from bagpipe_hpc.planning.policies.herald.held_rows import HeldRows
from bagpipe_hpc.planning.policies.herald.planner import HeraldPlanner
from bagpipe_hpc.planning.policies.herald.settings import HeraldSettings
from bagpipe_hpc.planning.policy import Assignment, Policy
from bagpipe_hpc.planning.row_slots import state_bytes
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window

_HOME_BYTES = 4
"""Memory for the home of a row."""
_BATCHES = 2
"""The window: each batch is planned with the next one in view."""


class HeraldPolicy(Policy):
    """Gives samples to the trainers that hold their rows, and moves rows when others read them."""

    Settings = HeraldSettings
    sharings = ("home",)
    writes_apart = True

    def window(self, wanted: Window) -> Window:
        """A batch and the next one."""
        return Window(min(_BATCHES, wanted.lookahead), 1, serial=True)

    def assignment(self) -> Assignment | None:
        """By the rows that trainers hold; it tracks their caches by itself."""
        if not self.settings.location_aware:
            return None
        return ByLocation(self.new_held_rows(), self.facts.trainers, self.telling_features)

    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A new planner."""
        facts = self.facts
        return HeraldPlanner(
            facts.total_rows,
            facts.trainers,
            window,
            shared_capacity,
            private_capacity,
            held=self.new_held_rows(),
            on_demand=self.settings.on_demand,
            grid=facts.grid,
            verify=facts.verify,
            feature_tables=facts.feature_tables,
        )

    def new_held_rows(self) -> HeldRows:
        """The trainers' caches, empty."""
        return HeldRows(self.facts.total_rows, self.facts.trainers, self.most_held)

    @property
    def most_held(self) -> int:
        """Most rows that a trainer holds, but for those of a batch, which may be more; 0 for any number.

        It must be known before the first batch, because the assignment needs it too: `cache.rows` less copies of all
        rows that a slice can use. A single trainer needs no copies.
        """
        facts = self.facts
        copies = facts.slice_rows if facts.trainers > 1 else 0
        return max(1, facts.cache_rows - copies) if facts.cache_rows else 0

    @property
    def telling_features(self) -> np.ndarray | None:
        """Numbers of the features whose rows count; None for all.

        These are the features with the largest tables. All trainers use the rows of a small table in every batch, so it
        says little where they are.
        """
        facts, wanted = self.facts, self.settings.telling_features
        if not 0 < wanted < facts.features:
            return None
        tables = list(facts.feature_tables or range(facts.tables))
        sizes = np.diff(facts.table_offsets)[tables]
        return np.sort(np.argsort(-sizes, kind="stable")[:wanted])

    def least_bytes(self, window: Window, most_batches: int) -> int:  # noqa: ARG002
        """Bytes that a planner and the assignment take at least."""
        held = HeldRows.bytes_for(self.facts.total_rows, self.most_held)
        ways = 2 if self.settings.location_aware else 1
        return (
            state_bytes(self.facts.total_rows, verify=self.facts.verify)
            + _HOME_BYTES * self.facts.total_rows
            + ways * held
        )
