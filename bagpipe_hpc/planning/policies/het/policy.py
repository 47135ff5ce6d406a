"""The policy `het` (PVLDB 15(2), 2022): docs/policies.md says what its rules are."""

from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.het.planner import SLOTS_A_ROW, HetPlanner, state_bytes
from bagpipe_hpc.planning.policies.het.settings import HetSettings
from bagpipe_hpc.planning.policy import Policy
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window


class HetPolicy(Policy):
    """Trainers hold rows of their own, which may miss a bounded number of others' updates."""

    Settings = HetSettings
    adds_rows = True

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """Each batch is planned alone."""
        return Window(1, 1)

    @property
    def most_missing(self) -> int:
        """At most s updates that were added and not seen, and at most s unsent ones of each other trainer."""
        return self.facts.trainers * int(self.settings.staleness)

    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A new planner."""
        return HetPlanner(
            self.facts.total_rows,
            self.facts.trainers,
            window,
            shared_capacity,
            private_capacity,
            settings=self.settings,
            most_held=self.most_held,
        )

    @property
    def most_held(self) -> int | None:
        """Most rows that a trainer holds between two batches: `cache.rows` less those that a slice can use.

        None where `cache.rows` is not set.
        """
        facts = self.facts
        return max(0, facts.cache_rows // SLOTS_A_ROW - facts.slice_rows) if facts.cache_rows else None

    def least_bytes(self, window: Window, most_batches: int) -> int:  # noqa: ARG002
        """Bytes that a planner takes at least."""
        return state_bytes(self.facts.total_rows, self.facts.trainers)
