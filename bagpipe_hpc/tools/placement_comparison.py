"""`bagpipe compare-placements`: what each placement gives servers to hold and to do, by the plans of a run.

Plans do not depend on where rows lie, so they are made once; each placement then says from which server each of their
rows is fetched, and to which it is put or added. Beside that stands the load that a placement's own model expects.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.doors import PLACEMENTS
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import BagpipeError, CapacityError, ConfigError
from bagpipe_hpc.kernels.row_copies import row_copies
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.rows.placements.assignment import AssignedTables, whole_tables
from bagpipe_hpc.rows.placements.planned import PlannedTables
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.asked_trainers import require_samples
from bagpipe_hpc.tools.policy_comparison.contender import Contender, distinct, refusals
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.sharding.measured_costs import ProcessorCaches

_ROUNDS = 3
"""Rounds over all batches to measure; the fastest counts for each batch, since other programs only add time."""


@dataclass(frozen=True)
class BatchRows:
    """Rows that all trainers together move for a batch, of one group of tables.

    Attributes:
        got: global rows that are fetched, int64; a row comes once for each trainer that fetches it.
        sent: global rows that are put or added, int64.
    """

    got: NDArray[np.int64]
    sent: NDArray[np.int64]


class PlanRows(NamedTuple):
    """Rows of a plan.

    Attributes:
        is_batch: whether it is the plan of a batch; a closing plan only writes back.
        groups: the rows of each group of tables.
    """

    is_batch: bool
    groups: list[BatchRows]

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return sum(rows.got.nbytes + rows.sent.nbytes for rows in self.groups)


class LookUps:
    """How often the rows of each group of tables are looked up in the batches that are planned.

    Args:
        run: the run of these batches.
    """

    def __init__(self, run: Run) -> None:
        self._groups = run.groups
        self._rows: list[list[NDArray[np.int64]]] = [[] for _ in run.groups]
        self._counts: list[list[NDArray[np.int64]]] = [[] for _ in run.groups]
        self.bytes = 0
        """Bytes that the counts take."""

    def seeing(self, batches: Iterator[Bags]) -> Iterator[Bags]:
        """Count batches and pass them on."""
        for bags in batches:
            for group, rows, counts in zip(self._groups, self._rows, self._counts, strict=True):
                unique, looked_up = np.unique(group.look_ups.of(bags).values, return_counts=True)
                rows.append(unique)
                counts.append(looked_up)
                self.bytes += unique.nbytes + looked_up.nbytes
            yield bags

    def share_of_others(self, pinned: Mapping[str, NDArray[np.int64]]) -> float:
        """Share of the look-ups of other rows than these, which are given by the names of their tables."""
        others = total = 0
        for group, rows, counts in zip(self._groups, self._rows, self._counts, strict=True):
            tables = group.tables.tables
            none = np.empty(0, dtype=np.int64)
            own = [first + pinned.get(name, none) for name, first in zip(tables.names, tables.offsets, strict=False)]
            looked_up = np.concatenate([*counts, none])
            is_other = ~np.isin(np.concatenate([*rows, none]), np.concatenate(own))
            others += int(looked_up[is_other].sum())
            total += int(looked_up.sum())
        return others / total if total else 0.0


@dataclass(frozen=True)
class ServerLoad:
    """What a placement asks of servers; lists are by server.

    Attributes:
        held_bytes: bytes of the rows that it holds, with their optimizer states.
        rows: rows that are got, put and added for a batch, on average.
        bytes: bytes of the records of these rows.
        expected: cost of a batch by the placement's own model; empty where it has none.
        expects_ms: whether `expected` is in milliseconds; else its values compare only with each other.
        slow_look_ups: share of the look-ups of rows that the placement pins at no trainer; None where it pins none.
        measured_ms: processor time to gather the rows of a batch that are got, and to put the others back, medians over
            the batches: of the slowest server, and the mean over the servers; None if it was not measured.
    """

    held_bytes: list[int]
    rows: list[float]
    bytes: list[float]
    expected: list[float]
    expects_ms: bool
    slow_look_ups: float | None
    measured_ms: tuple[float, float] | None


def compare_placements(arguments: argparse.Namespace) -> Report:
    """Compare every placement with every number of servers; see `cli` for the arguments.

    Raises:
        BagpipeError: the configuration asks for something impossible, or every placement refuses it. If only some
            refuse these tables or servers, each has a line in the table instead.
    """
    contenders = distinct(
        [Contender.parse(text, "tables.placement", "--placements") for text in arguments.placements], "--placements"
    )
    for contender in contenders:
        _require_own(contender)
    config = load_config(arguments.config, arguments.overrides)
    require_samples([arguments.trainers], config)
    run = prepare_run(replace(config, train=replace(config.train, resume="")))
    look_ups = LookUps(run)
    moved = _kept(_moved(run, arguments.trainers, arguments.batches, look_ups), look_ups)
    report = Report("compare-placements")
    cells: list[dict[str, Any]] = []
    report.figures |= {"config": str(arguments.config), "overrides": arguments.overrides, "cells": cells}
    for servers in arguments.servers:
        rows = []
        for contender in contenders:
            cell: dict[str, Any] = {"placement": contender.label, "servers": servers, "refusal": None, "load": None}
            cells.append(cell)
            try:
                own = load_config(arguments.config, contender.settings(arguments.overrides))
                load = _load(_with(run, own), servers, moved, look_ups, measure=arguments.measure)
            except BagpipeError as error:
                cell["refusal"] = str(error)
                continue
            cell["load"] = asdict(load)
            rows.append(_row(contender.label, load))
        if rows:
            ranks = f"{counted(servers, 'server')}, {counted(arguments.trainers, 'trainer')}"
            title = f"{ranks}: what servers hold, and move for a batch"
            report.table(title, _HEADINGS if arguments.measure else _HEADINGS[: -len(_MEASURED)], rows)
    refused = refusals([(cell["placement"], _words(cell), cell["refusal"] or "") for cell in cells])
    if not any(cell["load"] for cell in cells):
        raise ConfigError("there is nothing to compare: " + "\n  ".join(refused))
    report.lines += ["", *refused]
    return report


def _words(cell: dict[str, Any]) -> str:
    return f"{cell['placement']}, {counted(cell['servers'], 'server')}"


def _require_own(contender: Contender) -> None:
    """Check that a placement's own settings are those of tables: plans are made once, with the common settings.

    Raises:
        ConfigError: a setting is not, and would have no effect.
    """
    if other := next((one for one in contender.overrides if not one.startswith("tables.")), None):
        raise ConfigError(
            f"--placements {contender.label!r}: {other}: plans are made once, for all placements, so one has "
            "settings of tables alone; write it behind CONFIG.toml, for all"
        )


def _with(run: Run, config: Config) -> Run:
    """The run with the settings of another placement."""
    return replace(run, config=replace(run.config, tables=config.tables))


def _moved(run: Run, trainers: int, most_batches: int | None, look_ups: LookUps) -> Iterator[PlanRows]:
    """The rows of each plan of the training segments, by group of tables."""
    policy = run.policy(trainers)
    need = choose_window(run, trainers)
    planner = policy.planner(need.window, need.groups)
    left = most_batches
    for segment in run.schedule:
        if segment.is_training and left != 0:
            batches = look_ups.seeing(islice(run.batches(segment), left))
            for plan in plan_segment(planner, batches, policy.start_slicing()):
                left = left if left is None or plan.shared.is_closing else left - 1
                yield PlanRows(not plan.shared.is_closing, [_of_group(group) for group in plan.groups])


def _kept(moved: Iterator[PlanRows], look_ups: LookUps) -> list[PlanRows]:
    """The rows of all plans, kept because every placement goes through them.

    Raises:
        CapacityError: this host lacks the memory for them.
    """
    free, kept, taken = free_bytes(), [], 0
    for of_plan in moved:
        kept.append(of_plan)
        taken += of_plan.bytes
        if (all_bytes := taken + look_ups.bytes) > free:
            raise CapacityError(
                f"--batches: the rows of {len(kept)} plans and their look-ups take {all_bytes / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB were free; give a smaller number, which is enough to compare"
            )
    return kept


def _of_group(plan: BatchPlan) -> BatchRows:
    parts = plan.trainers
    got = [plan.shared.fetch_rows] * len(parts) + [part.fetch_rows for part in parts]
    sent = [part.write_back_rows for part in parts]
    sent += [part.add_rows for part in parts if part.add_rows is not None]
    return BatchRows(np.concatenate(got), np.concatenate(sent))


def _load(run: Run, servers: int, moved: Sequence[PlanRows], look_ups: LookUps, *, measure: bool) -> ServerLoad:
    parts = run.partitions(servers)
    batches = max(1, sum(is_batch for is_batch, _ in moved))
    rows_of, bytes_of = np.zeros(servers), np.zeros(servers)
    for _, of_plan in moved:
        for part, group, rows in zip(parts, run.groups, of_plan, strict=True):
            for some in (rows.got, rows.sent):
                counts = np.bincount(part.owner(some), minlength=servers)
                rows_of += counts
                bytes_of += counts * group.record.bytes
    expected, expects_ms, pinned = _own_words(run, servers)
    return ServerLoad(
        held_bytes=run.server_bytes(servers),
        rows=(rows_of / batches).tolist(),
        bytes=(bytes_of / batches).tolist(),
        expected=expected,
        expects_ms=expects_ms,
        slow_look_ups=look_ups.share_of_others(pinned) if any(map(len, pinned.values())) else None,
        measured_ms=_measured(run, parts, servers, moved) if measure else None,
    )


def _own_words(run: Run, servers: int) -> tuple[list[float], bool, dict[str, NDArray[np.int64]]]:
    """A placement's expected cost of each server, whether in milliseconds, and the rows that it pins, by table."""
    kind, settings = PLACEMENTS.implementation(run.config.tables.placement), run.config.tables.settings
    if not issubclass(kind, AssignedTables):
        return [], False, {}
    groups = [replace(group.tables.tables, row_bytes=group.record.bytes) for group in run.groups]
    expected = list(kind.expected(whole_tables(groups), servers, settings))
    if not issubclass(kind, PlannedTables):
        return expected, kind.expects_ms, {}
    plan = read_plan(settings.plan_path)
    return (
        expected,
        kind.expects_ms,
        {name: np.concatenate(kept) for name, kept in zip(plan.tables, plan.kept_rows(plan.tables), strict=True)},
    )


def _measured(run: Run, parts: Sequence[RowPartition], servers: int, moved: Sequence[PlanRows]) -> tuple[float, float]:
    """Time to serve a batch, medians over the batches: of the slowest server, and the mean of the servers.

    Raises:
        CapacityError: the largest server's rows do not fit in this host's memory.
    """
    largest = max(run.server_bytes(servers))
    if largest > (free := free_bytes()):
        raise CapacityError(
            f"--measure: the largest server has {largest / 1e9:.1f} GB of rows, and {free / 1e9:.1f} GB are free here; "
            "leave --measure out, or use more --servers"
        )
    times = np.zeros((servers, len(moved)))
    for server in range(servers):
        for number, (part, group) in enumerate(zip(parts, run.groups, strict=True)):
            times[server] += _serving_times(
                part,
                server,
                [of_plan.groups[number] for of_plan in moved],
                group.record.width,
                run.config.kernels.backend,
            )
    of_batches = times[:, [of_plan.is_batch for of_plan in moved]]
    if not of_batches.size:
        return 0.0, 0.0
    return 1e3 * float(np.median(of_batches.max(axis=0))), 1e3 * float(np.median(of_batches.mean(axis=0)))


def _serving_times(
    part: RowPartition, server: int, moved: Sequence[BatchRows], width: int, backend: str
) -> NDArray[np.float64]:
    """Processor seconds to gather and put back each batch's rows of one server, in a table as large as the server's.

    It runs in one thread, so other programs hardly change the time, and from empty processor caches, as learning
    placements measure.
    """
    table = np.ones((part.rows_on(server), width), dtype=np.float32)
    copies, caches = row_copies(backend), ProcessorCaches()
    times = np.full(len(moved), np.inf)
    places = [[part.offset(some[part.owner(some) == server]) for some in (rows.got, rows.sent)] for rows in moved]
    records = np.ones((max((some.size for both in places for some in both), default=0), width), dtype=np.float32)
    for _ in range(_ROUNDS):
        for number, (got, sent) in enumerate(places):
            caches.empty()
            start_s = time.thread_time()
            copies.gather(table, got, records[: got.size])
            copies.scatter(table, sent, records[: sent.size])
            times[number] = min(times[number], time.thread_time() - start_s)
    return times


_MEASURED = ("measured ms", "to mean")
_HEADINGS = (
    "placement",
    "largest MB",
    "to mean",
    "rows of the busiest",
    "to mean",
    "kB of the busiest",
    "kB of all",
    "slow look-ups",
    "model ms",
    "to mean",
    *_MEASURED,
)


def _row(label: str, load: ServerLoad) -> list[str]:
    largest_mb = max(load.held_bytes) / 1e6
    row = [
        label,
        f"{largest_mb:,.1f}" if largest_mb >= 10 else f"{largest_mb:.3g}",
        f"{_to_mean(load.held_bytes):.2f}",
        f"{max(load.rows):,.1f}",
        f"{_to_mean(load.rows):.2f}",
        f"{max(load.bytes) / 1e3:,.1f}",
        f"{sum(load.bytes) / 1e3:,.1f}",
    ]
    row += [
        "-" if load.slow_look_ups is None else f"{load.slow_look_ups:.2%}",
        f"{max(load.expected):.3f}" if load.expected and load.expects_ms else "-",
        f"{_to_mean(load.expected):.2f}" if load.expected else "-",
    ]
    if load.measured_ms is None:
        return row
    slowest_ms, mean_ms = load.measured_ms
    return [*row, f"{slowest_ms:.3f}", f"{slowest_ms / mean_ms:.2f}" if mean_ms else "-"]


def _to_mean(values: Sequence[float]) -> float:
    """Ratio of the largest value to the mean."""
    return max(values) * len(values) / sum(values) if sum(values) else 1.0
