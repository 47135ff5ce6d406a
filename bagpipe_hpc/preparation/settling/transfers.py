"""Settles how rows of each group of tables travel between hosts, before the ways to them are opened."""

import logging

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.cluster.transfer_choice import choose_transfers
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.rows.transfer_probe import probe_transfers, probed_rows
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.rows.copies import RowCopies
from bagpipe_hpc.run.run import Run

log = logging.getLogger(__name__)

_BY_DEFAULT = "messages"


def settle_transfers(
    run: Run, need: CacheNeed, comms: Communicators, routes: RowRoutes, copies: RowCopies | None
) -> list[str]:
    """The way of each group's rows: as `roles.transfers` says, or what is faster on these links.

    The choice changes no bit of the run. Where all rows are in memory that trainers share, there is nothing to choose;
    rows on disk travel by messages alone.

    Collective over: all ranks, which get the same answer.

    Args:
        run: its settings, and what a row of each group takes.
        need: the window and the caches: about as many rows as a batch fetches are tried.
        comms: this rank's communicators.
        routes: which rows are far.
        copies: as for `RowWindow`; None on the oracle.

    Raises:
        ConsistencyError: messages gave back other numbers than were put.
        WaitTimeoutError: rows did not arrive in time; where a call blocks, the job is ended instead.
    """
    setting = run.config.roles.transfers
    if setting != "auto":
        return [setting for _ in run.groups]
    if not routes.any_far:
        return [_BY_DEFAULT for _ in run.groups]
    if not routes.in_memory:
        if comms.role is Role.ORACLE:
            log.info("rows travel by messages (roles.transfers = auto: they lie on disk)")
        return [_BY_DEFAULT for _ in run.groups]
    ways = []
    for group, slots in zip(run.groups, need.groups, strict=True):
        # A row stays for a window or longer: no more than these come in with a batch, on the average.
        rows = probed_rows(slots.held // need.window.lookahead, group.record.bytes)
        poll_s, timeout_s = run.config.roles.server_poll_us * 1e-6, run.config.train.timeout_s
        trials = probe_transfers(comms.world, routes, group.record.width, rows, poll_s, timeout_s, copies)
        choice = choose_transfers(trials, rows, group.record.bytes)
        if comms.role is Role.ORACLE:
            log.info("%s", choice)
        ways.append(choice.way)
    return ways
