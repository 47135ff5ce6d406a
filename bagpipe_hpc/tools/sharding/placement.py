"""The placements `autoshard` and `dreamshard`: `bagpipe place` learns them, and runs read the plan, without torch."""

from typing import Any, ClassVar

from bagpipe_hpc.rows.placements.planned import Found, PlannedTables, Request


class LearnedTables(PlannedTables):
    """Whole tables on servers, as a learned policy assigns them.

    Attributes:
        method: what learns, `autoshard` or `dreamshard`.
    """

    method: ClassVar[str]

    @classmethod
    def search(cls, request: Request, settings: Any) -> Found:
        """Learn from groups of tables that are measured here; take the best of learned and greedy assignments.

        Raises:
            SettingError: no assignment has room for the tables.
        """
        from bagpipe_hpc.tools.sharding.search import search_assignment

        return search_assignment(cls.method, request, settings)


class AutoShard(LearnedTables):
    """By AutoShard (Zha et al., KDD 2022)."""

    method = "autoshard"


class DreamShard(LearnedTables):
    """By DreamShard (Zha et al., NeurIPS 2022)."""

    method = "dreamshard"
