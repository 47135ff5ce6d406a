"""Tries the ways that rows can take between hosts, on the links and ranks of a run that is about to begin.

Rows of a table made for this are put and got as in the run: by `RowWindow`, by all trainers at once, while servers poll
as they will.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.cluster.transfer_choice import Trial
from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.mpi.rows.one_sided import has_unified_memory
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.mpi.waiting import Answered, Polls, serve_until_barrier, wait_for_barrier
from bagpipe_hpc.rows.copies import RowCopies
from bagpipe_hpc.rows.partition import RoundRobinPartition

_ROUNDS = 4
"""Each way once a round; the first round brings connections and pages into being, the fastest of the others counts."""
_MOST_BYTES = 1 << 19
"""Of the rows of a trainer: 0.4 ms each way on a link of 10 Gbit/s."""


def probed_rows(rows_a_batch: int, row_bytes: int) -> int:
    """How many rows a trainer puts and gets: as many as for a batch, where that is neither nothing nor long."""
    return max(1, min(rows_a_batch, _MOST_BYTES // row_bytes))


def probe_transfers(
    comm: MPI.Intracomm,
    routes: RowRoutes,
    record_width: int,
    rows: int,
    poll_s: float,
    timeout_s: float,
    copies: RowCopies | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Trial]:
    """Put and get rows by every way, in turn.

    Collective over `comm`.

    Args:
        comm: all ranks of the layout, in its order.
        routes: who is a server, and which rows are far; some are.
        record_width: numbers W of a record.
        rows: rows of each trainer.
        poll_s: longest sleep of a server between polls.
        timeout_s: longest wait for any rank.
        copies: as for `RowWindow`.
        clock: tells the time in seconds.

    Returns:
        What each trainer found that has far servers, in rank order; the same on all ranks. One-sided calls are
        left out where the MPI's windows have private copies, which servers would not see change.

    Raises:
        WaitTimeoutError: rows did not arrive in time; where a call blocks, the job is ended instead.
    """
    layout, rank = routes.layout, comm.Get_rank()
    partition = _table(layout, rows)
    with TimeLimit("all ranks to look at this MPI's windows", timeout_s):
        is_unified = has_unified_memory(comm)
    ways = [way for way in TRANSFER_WAYS if way != "one_sided" or is_unified]
    with ExitStack() as opened:
        windows = {
            way: opened.enter_context(RowWindow(comm, routes, partition, record_width, timeout_s, way, copies))
            for way in ways
        }

        def answer() -> Answered:
            return max(window.answer() for window in windows.values())

        def meet() -> None:
            if layout.role(rank) is Role.SERVER:
                serve_until_barrier(comm, answer, Polls(poll_s))
            else:
                wait_for_barrier(comm, "the other ranks to try the ways between hosts", timeout_s)

        own = np.empty(0, dtype=np.int64)
        if layout.role(rank) is Role.TRAINER:
            own = _far_rows(partition, routes, rank)[:rows]
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(_ROUNDS):
            for way in ways:
                meet()
                if own.size:
                    seconds[way].append(_put_and_get(windows[way], own, record_width, turn, clock))
        meet()
    trial: Trial | None = None
    if own.size:
        trial = {way: math.inf if math.inf in found else min(found[1:]) for way, found in seconds.items()}
    with TimeLimit("all ranks to say how fast rows came", timeout_s):
        trials = comm.allgather(trial)
    return [found for found in trials if found is not None]


def _table(layout: RoleLayout, rows: int) -> RoundRobinPartition:
    """Where the rows of all trainers lie: of each as many at every server, twice `rows` in all, as some may be near."""
    at_each_server = -(-2 * rows // layout.servers)
    return RoundRobinPartition(at_each_server * layout.trainers * layout.servers, layout.servers)


def _far_rows(partition: RoundRobinPartition, routes: RowRoutes, rank: int) -> NDArray[np.int64]:
    """This trainer's share of the rows of each server that is far, in no order."""
    order = np.random.default_rng(0).permutation(partition.total_rows)
    is_own = partition.offset(order) % routes.layout.trainers == routes.layout.role_rank(rank)
    own: NDArray[np.int64] = order[is_own & np.isin(partition.owner(order), routes.far_servers(rank))]
    return own


def _put_and_get(
    window: RowWindow, rows: NDArray[np.int64], record_width: int, turn: int, clock: Callable[[], float]
) -> float:
    """Seconds for both; infinite if what came back is not what was put."""
    records = np.random.default_rng(turn).random((rows.size, record_width), dtype=np.float32)
    back = np.empty_like(records)
    start_s = clock()
    window.put(rows, records)
    window.get(rows, back)
    seconds = clock() - start_s
    return seconds if np.array_equal(records, back) else math.inf
