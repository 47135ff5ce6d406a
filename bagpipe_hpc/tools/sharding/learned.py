"""What was learned, and the assignments that it gives.

Shapes: `T` tables, `S` servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bagpipe_hpc.tools.sharding.cost_model import CostModel, members_of
from bagpipe_hpc.tools.sharding.episodes import ServerPolicy, roll_out
from bagpipe_hpc.tools.sharding.task import GroupCosts, Task, groups_of, slowest_ms

Holders = tuple[int, ...]
"""The server of each table, `[T]`."""
_DRAWN = 256
"""Candidates that the policy draws, beside its likeliest."""
_MEASURED = 10
"""Of them, those that look best."""


@dataclass(frozen=True)
class Learned:
    """A policy and a cost model, for any number of servers, and for tables whose features are scaled alike.

    Attributes:
        policy: puts tables on servers.
        model: says what groups cost.
        task: that it was learned from.
        seen: assignments of that task with room, which were measured on the way.
        seed: of assignments that are drawn.
    """

    policy: ServerPolicy
    model: CostModel
    task: Task
    seen: tuple[Holders, ...]
    seed: int

    def expected_ms(self, task: Task, holders: Sequence[int]) -> float:
        """What the cost model expects of the slowest server."""
        return max(self.expected_of_servers(task, holders))

    def expected_of_servers(self, task: Task, holders: Sequence[int]) -> list[float]:
        """What the cost model expects of each server, milliseconds of a batch."""
        members = torch.stack([members_of(group, len(task.tables)) for group in groups_of(holders, task.servers)])
        with torch.no_grad():
            costs = self.model.predict(torch.from_numpy(task.features), members)
        found: list[float] = costs.sum(dim=1).tolist()
        return found

    def candidates(self, task: Task) -> list[Holders]:
        """Assignments with room for all tables: the policy's likeliest and others that it draws, the cheapest first."""
        generator = torch.Generator().manual_seed(self.seed)
        found: dict[Holders, None] = {}
        with torch.no_grad():
            for episodes in (
                roll_out(self.policy, self.model, task, 1, None),
                roll_out(self.policy, self.model, task, _DRAWN, generator),
            ):
                kept = episodes.holders[episodes.has_room].tolist()
                found |= dict.fromkeys(map(tuple, kept))
        return sorted(found, key=lambda holders: self.expected_ms(task, holders))

    def best(self, task: Task, costs: GroupCosts) -> Holders | None:
        """The cheapest by what it costs, of the candidates that look best and of what was seen of that task.

        Returns:
            The assignment; None where none has room.
        """
        tried = [*self.candidates(task)[:_MEASURED], *(self.seen if task is self.task else ())]
        return min(tried, key=lambda holders: slowest_ms(costs, holders, task.servers), default=None)
