"""What a placement asks of servers: rows to hold and to move, by its own model and as measured here."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.doors import PLACEMENTS
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.rows.placements.assignment import AssignedTables, whole_tables
from bagpipe_hpc.rows.placements.planned import PlannedTables
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.tools.placement.plan_rows import BatchRows, LookUpCounts, PlanRows
from bagpipe_hpc.tools.sharding.measured_costs import ProcessorCaches

_ROUNDS = 3
"""Rounds over all batches to measure; the fastest counts for each batch, since other programs only add time."""


@dataclass(frozen=True)
class PlacementLoad:
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


def placement_load(
    run: Run, servers: int, moved: Sequence[PlanRows], look_ups: LookUpCounts, *, measure: bool
) -> PlacementLoad:
    """What the placement of a run asks of servers.

    Args:
        run: the run, with this placement.
        servers: number of servers.
        moved: the rows of all plans.
        look_ups: the look-ups of the planned batches.
        measure: time how long each server takes, on this machine.

    Raises:
        BagpipeError: the placement refuses these tables or servers, or this host lacks the memory to measure.
    """
    parts = run.partitions(servers)
    batches = max(1, sum(is_batch for is_batch, _ in moved))
    rows_of, bytes_of = np.zeros(servers), np.zeros(servers)
    for _, of_plan in moved:
        for part, group, rows in zip(parts, run.groups, of_plan, strict=True):
            for some in (rows.got, rows.sent):
                counts = np.bincount(part.owner(some), minlength=servers)
                rows_of += counts
                bytes_of += counts * group.record.bytes
    expected, expects_ms, pinned = _by_own_model(run, servers)
    return PlacementLoad(
        held_bytes=run.server_bytes(servers),
        rows=(rows_of / batches).tolist(),
        bytes=(bytes_of / batches).tolist(),
        expected=expected,
        expects_ms=expects_ms,
        slow_look_ups=look_ups.share_of_others(pinned) if any(map(len, pinned.values())) else None,
        measured_ms=_measured(run, parts, servers, moved) if measure else None,
    )


def _by_own_model(run: Run, servers: int) -> tuple[list[float], bool, dict[str, NDArray[np.int64]]]:
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
