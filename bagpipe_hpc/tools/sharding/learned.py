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
"""How many candidates the policy draws, besides its likeliest."""
_MEASURED = 10
"""How many of the candidates are measured: those with the lowest predicted cost."""


@dataclass(frozen=True)
class Learned:
    """A policy and a cost model, for any number of servers, and for tables whose features are scaled in the same way.

    Attributes:
        policy: puts tables on servers.
        model: predicts what groups cost.
        task: the task that it was learned from.
        seen: assignments of that task, with room for all tables, that were measured during learning.
        seed: seed for drawing assignments.
    """

    policy: ServerPolicy
    model: CostModel
    task: Task
    seen: tuple[Holders, ...]
    seed: int

    def expected_ms(self, task: Task, holders: Sequence[int]) -> float:
        """Predicted milliseconds of a batch at the slowest server."""
        return max(self.expected_of_servers(task, holders))

    def expected_of_servers(self, task: Task, holders: Sequence[int]) -> list[float]:
        """Predicted milliseconds of a batch at each server."""
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
        """The assignment with the lowest measured cost, of the most promising candidates and of those in `seen`.

        Returns:
            The assignment; None where none has room.
        """
        tried = [*self.candidates(task)[:_MEASURED], *(self.seen if task is self.task else ())]
        return min(tried, key=lambda holders: slowest_ms(costs, holders, task.servers), default=None)
