"""Recommends settings from plans: the window, the cache, servers and trainers, each with its reason. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bagpipe_hpc.cluster.server_memory import memory_problem
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.forecast.rank_memory import RankMemory, hosts_of
from bagpipe_hpc.tools.forecast.sweep import Outlook
from bagpipe_hpc.tools.forecast.timing import Timing

_AS_GOOD = 1.02
"""How much longer a step may be, or how much more it may move, for a shorter window and a smaller cache."""
_AS_FAST = 0.95
"""Share of the fastest split's samples a second that is enough: the fewest trainers that reach it are chosen."""


@dataclass(frozen=True)
class Advice:
    """Settings that go together.

    Attributes:
        title: for which trainers, nodes and links it is.
        settings: `section.field=value`.
        reasons: the reasons, a line each.
        trainers: number of trainers T.
        servers: number of servers S; None where no nodes are given.
        nodes: the number of nodes that was given; None where none was.
    """

    title: str
    settings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    trainers: int | None = None
    servers: int | None = None
    nodes: int | None = None


def advise_window(outlooks: Sequence[Outlook], timings: Mapping[int, Timing]) -> tuple[Outlook | None, Advice]:
    """The shortest window that is as good as the best one, and the cache that it needs.

    Args:
        outlooks: those of one number of trainers, shorter windows first.
        timings: timings of the windows whose time is known, by length; only these windows are judged, unless there is
            none.

    Returns:
        The chosen outlook, None where nothing fits; and the advice.
    """
    trainers = outlooks[0].trainers
    title = f"T = {trainers}"
    fitting = [one for one in outlooks if one.fits]
    if not fitting:
        least = min(outlooks, key=lambda one: one.need.total_rows)
        limit = least.run.config.cache.rows
        needed = f"one of {counted(least.lookahead, 'batch')} needs {least.need.total_rows} rows"
        none = f"no window tried fits cache.rows = {limit}: {needed}"
        return None, Advice(title, reasons=(none,), trainers=trainers)
    judged = [one for one in fitting if one.lookahead in timings] or fitting
    costs, unit = _costs(judged, timings)
    enough = _AS_GOOD * min(costs.values())
    chosen = next(one for one in judged if costs[one.lookahead] <= enough)
    place = judged.index(chosen)
    told = [chosen, *judged[max(0, place - 1) : place], *judged[place + 1 : place + 2]]
    why = [
        f"{unit} by lookahead.batches: " + ", ".join(f"{one.lookahead}: {costs[one.lookahead]:,.2f}" for one in told)
    ]
    if untimed := [one.lookahead for one in fitting if one not in judged]:
        why.append(f"not judged, since too few batches were planned to tell their time: {', '.join(map(str, untimed))}")
    if too_long := [one.lookahead for one in outlooks if not one.fits]:
        limit = chosen.run.config.cache.rows
        why.append(f"windows of {', '.join(map(str, too_long))} batches need more than cache.rows = {limit}")
    exact = "" if chosen.need.is_exact else ", by the batches that were planned: later ones may need more"
    why.append(f"cache.rows: the most that the window has resident at once{exact}")
    window = chosen.need.window
    settings = (
        f"lookahead.batches={window.lookahead}",
        f"lookahead.group={window.group}",  # the file may have one that is for another window
        f"cache.rows={chosen.need.total_rows}",
    )
    return chosen, Advice(title, settings, tuple(why), trainers)


def _costs(outlooks: Sequence[Outlook], timings: Mapping[int, Timing]) -> tuple[dict[int, float], str]:
    """The cost of each window by its length, and its unit: time where all windows have one, else bytes."""
    if not all(one.lookahead in timings for one in outlooks):
        return {one.lookahead: one.trainer_link.both / 1e3 for one in outlooks}, "kB a trainer and batch"
    known = all(timings[one.lookahead].prediction for one in outlooks)
    unit = "ms a step" if known else "ms a step of rows, sums and plans alone"
    return {one.lookahead: 1e3 * timings[one.lookahead].step_s for one in outlooks}, unit


@dataclass(frozen=True)
class Split:
    """A way to use nodes that are alike.

    Attributes:
        outlook: the window and the number of trainers.
        server_nodes: nodes with a server each, apart from those of trainers; 0 where one node has all ranks.
        samples_per_s: predicted samples a second.
        memory: memory of its ranks.
    """

    outlook: Outlook
    server_nodes: int
    samples_per_s: float
    memory: RankMemory


def splits_of(nodes: int, trainers: Sequence[int], trainers_per_node: int) -> list[tuple[int, int]]:
    """Pairs of a number of trainers and of server nodes that use `nodes` nodes: each node has servers or trainers.

    A single node has all ranks, so the number of server nodes is 0.
    """
    if nodes == 1:
        return [(number, 0) for number in trainers if number <= trainers_per_node]
    taken = ((number, -(-number // trainers_per_node)) for number in trainers)
    return [(number, nodes - hosts) for number, hosts in taken if hosts < nodes]


def advise_nodes(
    nodes: int, splits: Sequence[Split], advice: Mapping[int, Advice], per_node: int, node_bytes: int
) -> Advice:
    """The split with the fewest trainers that is about as fast as the fastest, of those whose ranks find memory.

    Args:
        nodes: how many nodes there are.
        splits: ways to use them.
        advice: the advice for each number of trainers.
        per_node: most trainers on a node.
        node_bytes: free memory of each node.
    """
    title = counted(nodes, "node")
    beside = "" if nodes == 1 else ", and a node for servers"
    fitting, problem = [], f"no number of trainers that was planned fits, with {per_node} on a node{beside}"
    for split in splits:
        one = split.outlook
        hosts = hosts_of(split.memory, split.server_nodes, one.trainers, per_node, node_bytes, one.smaller_planner)
        if (found := memory_problem(hosts)) is None:
            fitting.append(split)
        else:
            problem = f"T = {split.outlook.trainers}: {found}"
    if not fitting:
        return Advice(title, reasons=(problem,), nodes=nodes)
    fastest = max(split.samples_per_s for split in fitting)
    enough = [split for split in fitting if split.samples_per_s >= _AS_FAST * fastest]
    chosen = min(enough, key=lambda split: split.outlook.trainers)
    trainers, servers = chosen.outlook.trainers, chosen.memory.servers
    of_all = ", ".join(f"{one.outlook.trainers} and {one.memory.servers}: {one.samples_per_s:,.0f}" for one in fitting)
    why = (f"samples/s by trainers and servers: {of_all}", f"window and cache as for T = {trainers}")
    settings = (f"roles.servers={servers}", *advice[trainers].settings)
    return Advice(f"{title}: {1 + servers + trainers} ranks", settings, why, trainers, servers, nodes)
