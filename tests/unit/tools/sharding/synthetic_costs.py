"""Tables of which a formula says what groups of them cost, by far not the sum of what each costs."""

from collections.abc import Sequence

import numpy as np

from bagpipe_hpc.rows.placements.assignment import WholeTable, deal_greedily
from bagpipe_hpc.tools.sharding.task import FEATURES, GroupCost, Task, slowest_ms

_CACHE = 6.0


class SyntheticCosts:
    """Costs of groups: launching takes longer than the sum says, and groups that a cache holds are cheap."""

    def __init__(self, task: Task) -> None:
        self._features = task.features.astype(np.float64)
        self.asked = 0

    def cost(self, group: Sequence[int]) -> GroupCost:
        if not len(group):
            return GroupCost(0.0, 0.0)
        self.asked += 1
        width, hot, size = (self._features[list(group), place] for place in (0, 2, 3))
        traffic = float((np.exp(0.5 * width) * np.exp(0.7 * hot)).sum())
        held = float(np.exp(0.6 * size).sum())
        missed = max(0.0, held - _CACHE) / held  # what the cache does not hold is slower for all tables of the server
        forward = traffic**0.75 * (1 + 2.5 * missed) + 0.05 * len(group)
        return GroupCost(forward, 0.6 * forward + 0.1 * traffic)


def synthetic_task(tables: int, servers: int, seed: int, room: float = float("inf")) -> Task:
    """Tables at random; servers have `room` times their share of all bytes."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(tables, FEATURES)).astype(np.float32)
    features[:, 4:] = rng.dirichlet(np.ones(FEATURES - 4), tables)
    sizes = np.exp(0.6 * features[:, 3])
    whole = tuple(WholeTable(f"C{number}", int(1e6 * size), 16, 64) for number, size in enumerate(sizes))
    limit = room * sum(table.bytes for table in whole) / servers
    return Task(whole, features, servers, limit)


def best_greedy_ms(task: Task, costs: SyntheticCosts) -> float:
    """The slowest server of the best of the greedy assignments, by what each table costs alone and by its features."""
    columns = [task.features[:, place] for place in (0, 2, 3)]
    by = [[costs.cost([number]).total_ms for number in range(len(task.tables))], *(np.exp(c).tolist() for c in columns)]
    by.append(np.exp(0.5 * columns[0] + 0.7 * columns[1]).tolist())
    ways = [deal_greedily(task.tables, costs_of, task.servers, task.limit_bytes) for costs_of in by]
    return min(slowest_ms(costs, way, task.servers) for way in ways)
