"""The embedding server's main loop: fill the window, let MPI make progress, save."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from bagpipe_hpc.checkpointing.protocol import SavingSettings
from bagpipe_hpc.checkpointing.server import SavedGroup, ServerCheckpoints
from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import SERVER_LATE_SHARE, Answered, Polls, serve_until_barrier
from bagpipe_hpc.roles.context import RoleContext
from bagpipe_hpc.roles.request_waits import BarrierSleeps, open_watch
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.store import DiskStore, wait_for
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.first_records import fill_partition

log = logging.getLogger(__name__)


def run_embedding_server(
    context: RoleContext,
    windows: Sequence[RowWindow],
    stores: Sequence[DiskStore | None],
    watch: Callable[[], None],
) -> None:
    """Fill this server's partition, then serve it until the run ends, saving it at every checkpoint.

    Args:
        context: of this rank.
        windows: the rows, of each group of tables.
        stores: those rows, where they lie on disk.
        watch: raises if the run has come to its end without this server.
    """
    run, comms, trace = context.run, context.comms, context.trace
    server = comms.role_rank
    groups = list(zip(run.groups, windows, stores, run.partitions(comms.layout.servers), strict=True))
    with trace.span("fill"):
        for group, window, store, partition in groups:
            fill_partition(DiskRows(store) if store else window.local, run, group, partition, server)
            if store:
                wait_for(store.flush())  # a disk takes first writes in one piece much faster than one by one
                store.count_anew()
    for window in windows:
        window.synchronise()
    size = sum(window.local_rows * group.record.bytes for group, window, *_ in groups)
    log.info("holds %d rows, %.1f MB", sum(window.local_rows for window in windows), size / 1e6)
    for store in filter(None, stores):
        log.info("%s", store.describe())
    polls = polls_of(run, windows, watch)
    serve_until_barrier(comms.store, partial(answer_trainers, windows), polls)  # the rows may be fetched from now on
    settings, copies = SavingSettings.of(run.config, context.fill_timeout_s), row_copies(run.config.kernels.backend)
    saved = [SavedGroup(group.record, window, partition, store) for group, window, store, partition in groups]
    checkpoints = ServerCheckpoints(settings, saved, comms, copies, trace)
    checkpoints.serve(polls)
    for store in filter(None, stores):
        log.info("%s", store.describe_work())


def answer_trainers(windows: Sequence[RowWindow]) -> Answered:
    """Answer what far trainers ask, without waiting."""
    return max(window.answer() for window in windows)  # every one is asked


def polls_of(run: Run, windows: Sequence[RowWindow], watch: Callable[[], None]) -> Polls:
    """How often a server polls; one that no trainer asks merely waits for barriers.

    It may answer later where trainers ask for rows ahead and messages are all that it has to see: one-sided calls and
    disks get on only while it polls.

    Args:
        run: the settings.
        windows: the rows, of each group of tables.
        watch: raises if the run has come to its end without this server.
    """
    if any(window.is_asked for window in windows):
        looks_ahead = run.config.lookahead.batches > 1 and all(window.answers_from_memory for window in windows)
        late_share = SERVER_LATE_SHARE if looks_ahead else 0.0
        return Polls(run.config.roles.server_poll_us * 1e-6, watch, late_share=late_share)
    return Polls(BarrierSleeps.longest_s, watch, BarrierSleeps(open_watch(run.config.kernels.backend)))
