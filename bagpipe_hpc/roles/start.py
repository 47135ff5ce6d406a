"""Starts this rank's role, once the run is prepared, and sees it to the end of all.

A role's module is imported on its own ranks only: torch costs a second and 200 MB, which oracle and servers do without.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.mpi.communicators import ORACLE_RANK, Communicators
from bagpipe_hpc.mpi.heartbeat import HeartbeatCounter, HeartbeatMonitor, HeartbeatSender
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import serve_until_barrier, wait_for_barrier
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.roles.context import RoleContext
from bagpipe_hpc.roles.row_access import open_stores, open_windows, say_where_rows_are
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.run.output.folder import RESOURCES_NAME
from bagpipe_hpc.run.output.stop_request import NeverStopped, StopRequest
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.resource_use import save_resources
from bagpipe_hpc.telemetry.status.status import naming_silent_ranks, telling_status
from bagpipe_hpc.telemetry.trace import Trace, save_trace

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop


def run_prepared(
    purpose: Purpose,
    run: Run,
    need: CacheNeed,
    comms: Communicators,
    stop: StopRequest | NeverStopped,
    loop: "Loop | None",
) -> None:
    """Open the windows on the rows and run the role. Collective over: all ranks.

    Args:
        purpose: of the run.
        run: settings, data and schedule, all of which are settled.
        need: the window and the cache's capacities.
        comms: this rank's communicators.
        stop: whether the run is asked to stop; the oracle asks.
        loop: what trains a slice, on trainers; None for the cross-entropy of clicks.
    """
    trace = Trace(enabled=bool(run.config.train.trace))
    fill_timeout_s = run.fill_timeout_s(comms.layout.servers)
    context = RoleContext(purpose, run, need, comms, trace, fill_timeout_s)
    timeout_s = run.config.train.timeout_s
    comms.meet("being about to start its role", timeout_s)
    with (
        telling_status(purpose.folder, run.config.train, comms, trace),
        naming_silent_ranks(purpose.folder, timeout_s),
        HeartbeatCounter(comms.world, comms.hosts, timeout_s) as counter,
        open_stores(run, comms) as stores,
        open_windows(run, need, comms, stores, fill_timeout_s) as windows,
    ):
        say_where_rows_are(run, comms, stores, fill_timeout_s)
        if trace.enabled:
            comms.meet("having opened the tables", fill_timeout_s)
            trace.start()
        if comms.role is Role.ORACLE:
            _run_oracle(context, stop, counter)
        elif comms.role is Role.SERVER:
            _run_server(context, windows, stores, counter)
        else:
            _run_trainer(context, windows, loop)
        comms.meet("having finished", timeout_s)
        if purpose.folder:
            save_resources(purpose.folder / RESOURCES_NAME, comms, trace.sums_s())
        if trace.enabled:
            save_trace(Path(run.config.train.trace), comms, trace)


def _run_oracle(context: RoleContext, stop: StopRequest | NeverStopped, counter: HeartbeatCounter) -> None:
    """Plan, and show the servers meanwhile that the run goes on: nobody may ask them for hours."""
    from bagpipe_hpc.roles.oracle import run_oracle

    comms = context.comms
    servers = [comms.layout.world_rank(Role.SERVER, server) for server in range(comms.layout.servers)]
    with HeartbeatSender(comms.world, servers, context.run.config.train.timeout_s, counter) as heartbeats:
        run_oracle(context, stop)
        _wait_for_all(context)
    heartbeats.send_last()


def _run_server(
    context: RoleContext, windows: list[RowWindow], stores: list[DiskStore | None], counter: HeartbeatCounter
) -> None:
    """Serve until all ranks have finished."""
    from bagpipe_hpc.roles.embedding_server import answer_trainers, polls_of, run_embedding_server

    run, comms = context.run, context.comms
    oracle = HeartbeatMonitor(comms.world, ORACLE_RANK, "the oracle", run.config.train.timeout_s, counter)
    run_embedding_server(context, windows, stores, oracle.check)
    serve_until_barrier(comms.world, partial(answer_trainers, windows), polls_of(run, windows, oracle.check))
    oracle.finish()


def _run_trainer(context: RoleContext, windows: list[RowWindow], loop: "Loop | None") -> None:
    """Train; torch is imported here, on the trainers' ranks only."""
    from bagpipe_hpc.roles.trainer.trainer import run_trainer
    from bagpipe_hpc.step.slice_step import click_training

    run_trainer(context, windows, loop or click_training)
    _wait_for_all(context)


def _wait_for_all(context: RoleContext) -> None:
    wait_for_barrier(context.comms.world, "all ranks to finish", context.checkpoints_timeout_s)
