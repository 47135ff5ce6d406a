"""Learns an assignment of tables to servers, and compares it with greedy ones, all measured on this machine."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from bagpipe_hpc.config.doors import PLACEMENTS, SettingError
from bagpipe_hpc.rows.placements.assignment import server_limit
from bagpipe_hpc.rows.placements.planned import Found, Request
from bagpipe_hpc.rows.placements.settings import LearnedSettings
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.sharding.autoshard import AutoShardSettings, learn_autoshard
from bagpipe_hpc.tools.sharding.cost_model import rank_correlation
from bagpipe_hpc.tools.sharding.dreamshard import DreamShardSettings, learn_dreamshard
from bagpipe_hpc.tools.sharding.learned import Holders, Learned
from bagpipe_hpc.tools.sharding.measured_costs import MeasuredCosts
from bagpipe_hpc.tools.sharding.task import GroupCosts, Task, slowest_ms, table_features
from bagpipe_hpc.tools.text_table import aligned

log = logging.getLogger(__name__)

BASELINES = ("greedy_size", "greedy_dim", "greedy_lookup", "greedy_size_lookup")
_HELD_OUT = 16
_ROUNDS = 5
"""Rounds in which assignments are compared in the end."""


def search_assignment(method: str, request: Request, settings: LearnedSettings) -> Found:
    """The assignment whose slowest server was measured fastest.

    Args:
        method: `autoshard` or `dreamshard`.
        request: what is asked for.
        settings: the placement's own.

    Raises:
        SettingError: neither a learned nor a greedy assignment has room for the tables.
    """
    torch.set_num_threads(1)  # networks are tiny: threads would only wait for each other
    tables = request.tables
    if (largest := max(tables, key=lambda table: table.bytes)).bytes > server_limit(settings):
        cure = f"no server has room for table {largest.name} of {largest.bytes / 1e9:.6g} GB; allow more"
        raise SettingError("tables.server_gb", settings.server_gb, cure)
    task = Task(tables, table_features(tables, request.statistics), request.servers, server_limit(settings))
    most_bytes = int(settings.measured_gb * 1e9)
    costs = MeasuredCosts(tables, request.statistics, request.batch_size, settings.placement_seed, most_bytes)
    learned = _learn(method, task, costs, settings)
    ways = _greedy_ways(task, settings)
    if (best := learned.best(task, costs)) is not None:
        ways[method] = best
    if not ways:
        servers = counted(task.servers, "server")
        cure = f"no assignment was found with room for the tables on {servers}; use more, or allow more"
        raise SettingError("tables.server_gb", settings.server_gb, cure)
    found_ms = measured_in_turn(ways, task, costs)
    chosen = min(found_ms, key=lambda name: (found_ms[name], name != method))
    rows = [[name, f"{ms:.4g}"] for name, ms in sorted(found_ms.items(), key=lambda item: item[1])]
    report = [
        *aligned([["placement", "slowest server, ms a batch"], *rows], right=[1]),
        f"{costs.measured} groups of tables were measured; for {_HELD_OUT} random placements the cost model's ranks",
        f"agree with what was measured by {_held_out_correlation(learned, task, costs, settings):.2f} (Spearman)",
    ]
    if chosen != method:
        report.append(f"nothing that {method} found was better than {chosen}, whose assignment this is")
    expected = [max(0.0, ms) for ms in learned.expected_of_servers(task, ways[chosen])]
    return Found(ways[chosen], report, expected_ms=expected)


class MeasuredAnew(GroupCosts, Protocol):
    """Costs that can be measured anew."""

    def forget(self) -> None:
        """Measure groups anew when they are asked for again."""


def measured_in_turn(ways: Mapping[str, Holders], task: Task, costs: MeasuredAnew) -> dict[str, float]:
    """Milliseconds of a batch at the slowest server for each assignment: the median of several rounds.

    All are measured anew, because the best was chosen for one measurement that may have been lucky; and in turn, since
    a busy machine is slower for a while.
    """
    rounds = []
    for _ in range(_ROUNDS):
        costs.forget()
        rounds.append([slowest_ms(costs, holders, task.servers) for holders in ways.values()])
    return dict(zip(ways, np.median(rounds, axis=0).tolist(), strict=True))


def _learn(method: str, task: Task, costs: GroupCosts, settings: LearnedSettings) -> Learned:
    if method == "autoshard":
        auto = AutoShardSettings(seed=settings.placement_seed)
        return learn_autoshard(task, costs, replace(auto, steps=settings.rounds or auto.steps), log.info)
    dream = DreamShardSettings(seed=settings.placement_seed)
    return learn_dreamshard(task, costs, replace(dream, rounds=settings.rounds or dream.rounds), log.info)


def _greedy_ways(task: Task, settings: LearnedSettings) -> dict[str, Holders]:
    """The assignments of those greedy placements that find room."""
    ways: dict[str, Holders] = {}
    for name in BASELINES:
        try:
            ways[name] = tuple(PLACEMENTS.implementation(name).assign(task.tables, task.servers, settings))
        except SettingError as error:  # another one may find room
            log.info("%s: %s", name, error)
    return ways


def _held_out_correlation(learned: Learned, task: Task, costs: GroupCosts, settings: LearnedSettings) -> float:
    random = np.random.default_rng([settings.placement_seed, len(task.tables)])
    ways = random.integers(0, task.servers, (_HELD_OUT, len(task.tables))).tolist()
    expected: Sequence[float] = [learned.expected_ms(task, way) for way in ways]
    return rank_correlation(expected, [slowest_ms(costs, way, task.servers) for way in ways])
