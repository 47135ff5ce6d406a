"""`bagpipe compare-placements`: what each placement gives servers to hold and to do, by the plans of a run.

Plans do not depend on where rows lie, so they are made once; each placement then says which server each of their rows
is got from, put to or added to.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import BagpipeError, CapacityError
from bagpipe_hpc.kernels.row_copies import row_copies
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.prepare import choose_window, prepare_run
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.tools.policy_comparison.contender import Contender, distinct
from bagpipe_hpc.tools.report import Report

_ROUNDS = 3
"""Of all batches' gathers, to measure; the fastest counts for each, since other programs only add."""


@dataclass(frozen=True)
class BatchRows:
    """Rows that all trainers together move for a batch, of one group of tables.

    Attributes:
        got: global rows, int64, as often as they are got.
        sent: those that are put or added.
    """

    got: NDArray[np.int64]
    sent: NDArray[np.int64]


class PlanRows(NamedTuple):
    """Rows of a plan.

    Attributes:
        is_batch: whether it is one of a batch; a closing plan writes back alone.
        groups: of each group of tables.
    """

    is_batch: bool
    groups: list[BatchRows]


@dataclass(frozen=True)
class ServerLoad:
    """What a placement asks of servers; lists are by server.

    Attributes:
        held_bytes: rows with their optimizers' states.
        rows: got, put and added a batch, means.
        bytes: those rows' records.
        gather_ms: time to gather the rows that are got from the server that takes longest, median of the batches;
            None if it was not measured.
    """

    held_bytes: list[int]
    rows: list[float]
    bytes: list[float]
    gather_ms: float | None


def compare_placements(arguments: argparse.Namespace) -> Report:
    """Look at every placement with every number of servers; see `cli` for the arguments.

    Raises:
        BagpipeError: the configuration asks for what cannot be. A placement that refuses these tables or servers has a
            line of its own instead.
    """
    contenders = distinct(
        [Contender.parse(text, "tables.placement", "--placements") for text in arguments.placements], "--placements"
    )
    config = load_config(arguments.config, arguments.overrides)
    run = prepare_run(replace(config, train=replace(config.train, resume="")))
    moved = list(_moved(run, arguments.trainers, arguments.batches))
    report = Report("compare-placements")
    cells: list[dict[str, Any]] = []
    report.figures |= {"config": str(arguments.config), "overrides": arguments.overrides, "cells": cells}
    refusals = []
    for servers in arguments.servers:
        rows = []
        for contender in contenders:
            cell: dict[str, Any] = {"placement": contender.label, "servers": servers, "refusal": None, "load": None}
            cells.append(cell)
            try:
                own = load_config(arguments.config, contender.settings(arguments.overrides))
                load = _load(_with(run, own), servers, moved, measure=arguments.measure)
            except BagpipeError as error:
                cell["refusal"] = str(error)
                refusals.append(f"{contender.label}, {servers} servers: refused: {error}")
                continue
            cell["load"] = asdict(load)
            rows.append(_row(contender.label, load))
        if rows:
            title = f"{servers} servers, {arguments.trainers} trainers: what servers hold, and move for a batch"
            report.table(title, _HEADINGS if arguments.measure else _HEADINGS[:-1], rows)
    report.lines += ["", *refusals]
    return report


def _with(run: Run, config: Config) -> Run:
    """The run with the settings of another placement."""
    return replace(run, config=replace(run.config, tables=config.tables))


def _moved(run: Run, trainers: int, most_batches: int | None) -> Iterator[PlanRows]:
    """The rows of each plan of a training segment, of each group of tables."""
    policy = run.policy(trainers)
    need = choose_window(run, trainers)
    planner = policy.planner(need.window, need.groups)
    left = most_batches
    for segment in run.schedule:
        if segment.is_training and left != 0:
            batches = islice(run.batches(segment), left)
            for plan in plan_segment(planner, batches, policy.start_slicing()):
                left = left if left is None or plan.shared.is_closing else left - 1
                yield PlanRows(not plan.shared.is_closing, [_of_group(group) for group in plan.groups])


def _of_group(plan: BatchPlan) -> BatchRows:
    parts = plan.trainers
    got = [plan.shared.fetch_rows] * len(parts) + [part.fetch_rows for part in parts]
    sent = [part.write_back_rows for part in parts]
    sent += [part.add_rows for part in parts if part.add_rows is not None]
    return BatchRows(np.concatenate(got), np.concatenate(sent))


def _load(run: Run, servers: int, moved: Sequence[PlanRows], *, measure: bool) -> ServerLoad:
    parts = run.partitions(servers)
    batches = max(1, sum(is_batch for is_batch, _ in moved))
    rows_of, bytes_of = np.zeros(servers), np.zeros(servers)
    for _, of_plan in moved:
        for part, group, rows in zip(parts, run.groups, of_plan, strict=True):
            for some in (rows.got, rows.sent):
                counts = np.bincount(part.owner(some), minlength=servers)
                rows_of += counts
                bytes_of += counts * group.record.bytes
    return ServerLoad(
        held_bytes=run.server_bytes(servers),
        rows=(rows_of / batches).tolist(),
        bytes=(bytes_of / batches).tolist(),
        gather_ms=_measured(run, parts, servers, moved) if measure else None,
    )


def _measured(run: Run, parts: Sequence[RowPartition], servers: int, moved: Sequence[PlanRows]) -> float:
    """Median over the batches of the time that the slowest server takes to gather its rows.

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
            times[server] += _gather_times(
                part,
                server,
                [of_plan.groups[number].got for of_plan in moved],
                group.record.width,
                run.config.kernels.backend,
            )
    fetching = [of_plan.is_batch for of_plan in moved]
    slowest: list[float] = times.max(axis=0)[fetching].tolist()
    return 1e3 * statistics.median(slowest or [0.0])


def _gather_times(
    part: RowPartition, server: int, got: Sequence[NDArray[np.int64]], width: int, backend: str
) -> NDArray[np.float64]:
    """Seconds to gather each batch's rows of one server, from a table as large as its own."""
    table = np.ones((part.rows_on(server), width), dtype=np.float32)
    copies = row_copies(backend)
    times = np.full(len(got), np.inf)
    places = [part.offset(rows[part.owner(rows) == server]) for rows in got]
    into = np.empty((max((of_batch.size for of_batch in places), default=0), width), dtype=np.float32)
    for _ in range(_ROUNDS):
        for number, of_batch in enumerate(places):
            start_s = time.perf_counter()
            copies.gather(table, of_batch, into[: of_batch.size])
            times[number] = min(times[number], time.perf_counter() - start_s)
    return times


_HEADINGS = (
    "placement",
    "largest MB",
    "to mean",
    "rows of the busiest",
    "to mean",
    "kB of the busiest",
    "kB of all",
    "gather ms",
)


def _row(label: str, load: ServerLoad) -> list[str]:
    row = [
        label,
        f"{max(load.held_bytes) / 1e6:,.1f}",
        f"{_to_mean(load.held_bytes):.2f}",
        f"{max(load.rows):,.1f}",
        f"{_to_mean(load.rows):.2f}",
        f"{max(load.bytes) / 1e3:,.1f}",
        f"{sum(load.bytes) / 1e3:,.1f}",
    ]
    return row if load.gather_ms is None else [*row, f"{load.gather_ms:.3f}"]


def _to_mean(values: Sequence[float]) -> float:
    """How many times the mean the largest is."""
    return max(values) * len(values) / sum(values) if sum(values) else 1.0
