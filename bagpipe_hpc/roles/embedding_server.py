"""The embedding server's main loop: fill the window, let MPI make progress, save."""

import logging
from collections.abc import Callable

from bagpipe_hpc.checkpointing.protocol import SavingSettings
from bagpipe_hpc.checkpointing.server import ServerCheckpoints
from bagpipe_hpc.kernels.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import serve_until_barrier
from bagpipe_hpc.run.first_records import fill_partition
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.trace import Trace

log = logging.getLogger(__name__)

_UNASKED_SLEEP_S = 2e-3


def run_embedding_server(
    run: Run, comms: Communicators, window: RowWindow, timeout_s: float, trace: Trace, watch: Callable[[], None]
) -> None:
    """Fill this server's partition, then serve it until the run ends, saving it at every checkpoint.

    Args:
        run: settings, tables and their first values.
        comms: this rank's communicators.
        window: the rows.
        timeout_s: longest wait for the other ranks to take part in a checkpoint.
        trace: this rank's timeline.
        watch: raises if the run has come to its end without this server.
    """
    server = comms.role_rank
    partition = run.partition(comms.layout.servers)
    with trace.span("fill"):
        fill_partition(window.local, run, partition, server)
    window.synchronise()
    log.info("holds %d rows, %.1f MB", window.local_rows, window.local.nbytes / 1e6)
    poll_interval_s = longest_sleep_s(run, window)
    serve_until_barrier(comms.store, window.answer, poll_interval_s, watch)  # the rows may be fetched from now on
    settings, copies = SavingSettings.of(run.config, timeout_s), row_copies(run.config.kernels.backend)
    checkpoints = ServerCheckpoints(settings, run.record, comms, window, partition, copies, trace)
    checkpoints.serve(poll_interval_s, watch)


def longest_sleep_s(run: Run, window: RowWindow) -> float:
    """Seconds between polls of an idle server; one that no trainer asks merely waits for barriers."""
    return run.config.roles.server_poll_us * 1e-6 if window.is_asked else _UNASKED_SLEEP_S
