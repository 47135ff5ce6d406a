"""`python -m benchmarks host_sharing`: what trainers send from host to host, and what they would if hosts shared it.

Today each trainer gets a copy of its own of each row that lives elsewhere, and sends a gradient of its own home. If the
trainers of a host shared them, in memory, a host would get one copy of a row and send one gradient, the sum of its
trainers'. Both are counted in the same plans; `bagpipe simulate`'s model says what that would save. Then what homes
would save that are chosen by uses of hosts.

Legend: `H` hosts of as many trainers each, in rank order; `T` trainers.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.exchange import Exchange
from bagpipe_hpc.planning.batch_rows import Bools
from bagpipe_hpc.planning.homes.slots import UsedBatch
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import predict, steady
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.simulate.trace import Trace, step_orders, synthetic_trace, trace_policy

Counts = NDArray[np.int64]
Cell = dict[str, Any]

_GRADIENTS, _COPIES = ("now_home", "later_home"), ("next_copies", "rest_copies")
_SHARED = {"nothing": (), "copies": _COPIES, "copies and gradients": (*_COPIES, *_GRADIENTS)}
"""What trainers of a host might share: kinds of rows, by the names of `BatchLoad`."""
_SETTINGS = ["model.embedding_dim=64", "cache.sharing=home", "cache.exchange=direct", "train.device=cpu"]
_GBIT_PER_S = (25, 100)


def run(arguments: argparse.Namespace) -> Report:
    """Count and predict; see `command` for the arguments.

    Raises:
        ConfigError: no number of trainers is made up of whole hosts.
    """
    report = Report("host_sharing")
    cells: list[Cell] = []
    all_trainers = arguments.trainers or ([4] if arguments.quick else [8, 16, 64])
    asked = arguments.trainers_per_host or ([2] if arguments.quick else [4, 8])
    whole_hosts = {trainers: [of_host for of_host in asked if trainers % of_host == 0] for trainers in all_trainers}
    if not any(whole_hosts.values()):
        raise ConfigError(
            f"--trainers {_words(all_trainers)}: these are no whole hosts of {' or '.join(map(str, asked))}; "
            "use multiples of one, or other --trainers-per-host"
        )
    for trainers, of_hosts in whole_hosts.items():
        if uneven := [of_host for of_host in asked if of_host not in of_hosts]:
            report.lines.append(f"not run: {trainers} trainers in hosts of {_words(uneven)}: these are no whole hosts")
            report.figures.setdefault("not_run", []).append({"trainers": trainers, "trainers_per_host": uneven})
        if not of_hosts:
            continue
        drawn = drawn_look_ups(arguments, trainers)
        cells += shared_cells(drawn, of_hosts)
        if arguments.local_homes:
            cells += [cell for of_host in of_hosts for cell in shared_cells(drawn, [of_host], are_local=True)]
    report.figures |= {"rows": arguments.rows, "batch_size": arguments.batch_size, "lookahead": arguments.lookahead}
    report.figures |= {"cells": cells}
    title = f"{arguments.rows:,} rows by Zipf 1.05, batches of {arguments.batch_size:,}, L = {arguments.lookahead}"
    headings = [heading.replace("_", " ") for heading in cells[0]]
    report.table(title, headings, [[_text(value) for value in cell.values()] for cell in cells])
    return report


def _words(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Crossings:
    """Rows of one kind that trainers send each other for a batch.

    Attributes:
        single: as they do, `[H, H]` by the host that sends and the one that gets; those within a host among them.
        shared: from one host to another, with one for all trainers of a host; within a host none.
    """

    single: Counts
    shared: Counts

    def between_hosts(self, *, are_shared: bool) -> Counts:
        """Rows from one host to another, `[H, H]`."""
        return self.shared if are_shared else self.single * ~np.eye(len(self.single), dtype=np.bool_)


def crossings(plan: BatchPlan, trainers_per_host: int) -> dict[str, Crossings]:
    """What trainers send each other for a batch, by the names of `BatchLoad`."""
    trainers = len(plan.trainers)
    hosts = trainers // trainers_per_host
    found = {kind: Crossings(*np.zeros((2, hosts, hosts), dtype=np.int64)) for kind in (*_GRADIENTS, *_COPIES)}
    for home, part in enumerate(plan.trainers):
        if (exchange := part.exchanged) is None:  # of the plan that ends a segment
            continue
        here = home // trainers_per_host
        for kind, (others, rows) in _sent(exchange, trainers).items():
            there = others // trainers_per_host
            away = there != here
            pairs = np.unique(rows[away].astype(np.int64) * hosts + there[away])
            of_one = found[kind]
            for counts, of_rows in ((of_one.single, there[others != home]), (of_one.shared, pairs % hosts)):
                of_home = counts[:, here] if kind in _GRADIENTS else counts[here]
                of_home += np.bincount(of_rows, minlength=hosts)
    return found


def _sent(exchange: Exchange, trainers: int) -> dict[str, tuple[Counts, NDArray[np.int32]]]:
    """By kind: of each row that a home sends or sums, the other trainer, and the row by a number of the home's."""
    counts, everyone = exchange.counts, np.arange(trainers)
    return {
        "now_home": (np.repeat(everyone, exchange.now.sources), exchange.now.places),
        "later_home": (np.repeat(everyone, exchange.later.sources), exchange.later.places),
        "next_copies": (np.repeat(everyone, counts.next_to), exchange.next_sent),
        "rest_copies": (np.repeat(everyone, counts.rest_to), exchange.rest_sent),
    }


@dataclass(frozen=True)
class Drawn:
    """Look-ups of some trainers, to be planned with homes."""

    trace: Trace
    config: Config
    trainers: int
    window: Window
    steady_batches: int

    @property
    def batches(self) -> int:
        """How many are planned."""
        return self.steady_batches + 2 * self.window.lookahead

    @property
    def counted(self) -> range:
        """Those that count."""
        return steady(self.batches, self.window.lookahead)


def drawn_look_ups(arguments: argparse.Namespace, trainers: int) -> Drawn:
    config = load_config(
        REPOSITORY / "configs" / "criteo_terabyte.toml", [*_SETTINGS, f"train.batch_size={arguments.batch_size}"]
    )
    lookahead = replace(config.lookahead, batches=arguments.lookahead, group=0)
    window = Window(arguments.lookahead, lookahead.group_batches)
    return Drawn(synthetic_trace(config, arguments.rows, 1.05), config, trainers, window, arguments.batches)


def shared_cells(drawn: Drawn, of_hosts: Sequence[int], *, are_local: bool = False) -> list[Cell]:
    """Rows between hosts and predicted steps, by what trainers of a host share, for numbers of trainers a host.

    Homes are those of the rules, or of `LocalHomes`, which are planned in NumPy.

    The cluster is that of docs/simulate.md, but for the links that trainers of a host share. What stays within a host
    takes no time.
    """
    trainers, total_rows = drawn.trainers, drawn.trace.total_rows
    planner: Planner = trace_policy(drawn.trace, drawn.config, trainers).planner(drawn.window)
    if are_local:
        planner = LocalHomes(of_hosts[0], total_rows, trainers, drawn.window)
    loads: list[BatchLoad] = []
    busiest: list[int] = []
    found: dict[int, list[dict[str, Crossings]]] = {of_host: [] for of_host in of_hosts}
    for plan in plan_segment(planner, drawn.trace.batches(drawn.batches)):
        loads.append(BatchLoad.of_plan(plan))
        busiest.append(max((own.sent_slots.size for part in plan.trainers if (own := part.exchanged)), default=0))
        for of_host, of_plans in found.items():
            of_plans.append(crossings(plan, of_host))
    orders, record = step_orders(drawn.config, drawn.trace), RowRecord.of(drawn.config)
    cells = []
    for of_host, of_plans in found.items():
        counted = of_plans[drawn.counted.start : drawn.counted.stop]
        for name, kinds in _SHARED.items():
            cell: Cell = {"trainers": trainers, "trainers_per_host": of_host}
            cell |= {"homes": "most uses" if are_local else "by the rules", "shared": name, **_counts(counted, kinds)}
            cell |= {"sent_by_the_busiest": round(float(np.mean(busiest[drawn.counted.start : drawn.counted.stop])))}
            cell |= {"resident_a_host": planner.size().private_slots * of_host}
            ours = [_crossing(load, of_plan, kinds, of_host) for load, of_plan in zip(loads, of_plans, strict=True)]
            for gbit_per_s in _GBIT_PER_S:
                cluster = _cluster(trainers, of_host, gbit_per_s)
                order = orders.on(cluster)
                for sums, steps in (("step_ms", order), ("step_ms_without_dense_sums", replace(order, sums=()))):
                    predicted = predict(ours, drawn.window, cluster, record, steps)
                    cell[f"{sums}_{gbit_per_s}gbit"] = round(predicted.step_s * 1e3, 2)
            cells.append(cell)
    return cells


def _cluster(trainers: int, trainers_per_host: int, gbit_per_s: float) -> Cluster:
    return Cluster(
        trainers=trainers,
        compute_s_per_sample=6e-6,
        trainers_per_host=trainers_per_host,
        server_hosts=8,
        bytes_per_s=gbit_per_s * 1e9 / 8,
        latency_s=50e-6,
        plan_s_per_sample=0.02e-6,
    )


def _counts(found: Sequence[dict[str, Crossings]], shared: Sequence[str]) -> dict[str, int]:
    """Of all hosts for a batch, copies and gradients between hosts, and copies that the trainers of a host get."""
    means = {
        kind: np.mean([of_plan[kind].between_hosts(are_shared=kind in shared) for of_plan in found], axis=0)
        for kind in (*_GRADIENTS, *_COPIES)
    }
    here = [kind in shared for kind in _COPIES]
    got = [
        of_plan[kind].between_hosts(are_shared=True) if is_shared else of_plan[kind].single
        for of_plan in found
        for kind, is_shared in zip(_COPIES, here, strict=True)
    ]
    return {
        "copies": round(sum(means[kind].sum() for kind in _COPIES)),
        "gradients": round(sum(means[kind].sum() for kind in _GRADIENTS)),
        "copies_a_host": round(sum(counts.sum() for counts in got) / len(found) / len(got[0])),
    }


def _crossing(load: BatchLoad, found: dict[str, Crossings], shared: Sequence[str], trainers_per_host: int) -> BatchLoad:
    """A plan's work with a trainer's share of what its host sends or gets, in place of all that it exchanges."""
    hops: dict[str, Any] = {}
    for kind, of_one in found.items():
        counts = of_one.between_hosts(are_shared=kind in shared)
        rows = int(max(counts.sum(0).max(), counts.sum(1).max())) // trainers_per_host
        hops[kind] = tuple(Hop(rows, min(rows, hop.messages)) for hop in getattr(load, kind))
    return replace(load, **hops)


class LocalHomes(HomePlanner):
    """Of the trainers of the host with most uses of a row in the window, the one with most becomes its home.

    Where several have as many, rows take them in turn.

    Args:
        trainers_per_host: trainers of a host.
        total_rows, trainers, window: as for `HomePlanner`.
    """

    def __init__(self, trainers_per_host: int, total_rows: int, trainers: int, window: Window) -> None:
        super().__init__(total_rows, trainers, window)
        self._of_host = trainers_per_host
        self._number_of = np.empty(total_rows, dtype=np.int32)

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        """As `HomePlanner.choose_homes`, by this rule."""
        rows = batch.unique[fetched]
        self._number_of.fill(-1)
        self._number_of[rows] = np.arange(rows.size)
        uses = np.zeros((rows.size, self.trainers), dtype=np.int16)
        for coming in (batch, *self._loaded):
            assert isinstance(coming, UsedBatch), "loaded by HomeSlots"
            of_pair = self._number_of[coming.unique[coming.pair_rows]]
            uses[of_pair[of_pair >= 0], coming.pair_users[of_pair >= 0]] += 1
        of_hosts = uses.reshape(rows.size, -1, self._of_host)
        host = _most(of_hosts.sum(axis=2))
        homes: NDArray[np.integer] = host * self._of_host + _most(of_hosts[np.arange(rows.size), host])
        return homes


def _most(uses: NDArray[np.integer]) -> NDArray[np.intp]:
    """Of each row of `uses [n, m]` the number of the largest, of several the first from a place that moves on."""
    rows, columns = np.arange(uses.shape[0])[:, None], uses.shape[1]
    turned = (np.arange(columns) + rows) % columns
    most: NDArray[np.intp] = turned[rows[:, 0], np.take_along_axis(uses, turned, 1).argmax(1)]
    return most
