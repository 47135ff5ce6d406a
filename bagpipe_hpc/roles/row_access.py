"""Opens the ways to the embedding rows, before the roles run: servers' files where rows lie on disk, windows of all."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.kernels.block_file import block_files
from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import ORACLE_RANK, Communicators
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.preparation.rank_check import row_routes
from bagpipe_hpc.preparation.settling.transfers import settle_transfers
from bagpipe_hpc.rows.disk.block_file import disk_unit
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.run.run import Run

log = logging.getLogger(__name__)


@contextmanager
def open_stores(run: Run, comms: Communicators) -> Iterator[list[DiskStore | None]]:
    """Files for the rows of each group of tables, on servers whose memory does not hold them; else None for each."""
    servers, tables = comms.layout.servers, run.config.tables
    if comms.role is not Role.SERVER or run.is_in_memory(servers):
        yield [None for _ in run.groups]
        return
    open_file = block_files(run.config.kernels.backend)
    may_be_memory = run.config.debug.ssd_path_in_memory
    unit_bytes = disk_unit(tables.ssd_path, may_be_memory=may_be_memory)
    parts = zip(run.groups, run.partitions(servers), run.disk_memory(servers, comms.role_rank, unit_bytes), strict=True)
    stores = []
    for group, partition, memory_bytes in parts:
        rows, width = partition.rows_on(comms.role_rank), group.record.width
        stores.append(DiskStore(rows, width, memory_bytes, tables.ssd_path, open_file, may_be_memory=may_be_memory))
    yield list(stores)
    for store in stores:  # not after an error, which ends this process: a thread may be reading them for a checkpoint
        store.close()


def say_where_rows_are(run: Run, comms: Communicators, stores: Sequence[DiskStore | None], timeout_s: float) -> None:
    """Let the oracle's log say what lies on disk, where rows do. Collective over: all ranks.

    Args:
        run: says whether they do.
        comms: this rank's communicators.
        stores: as `open_stores` gives them.
        timeout_s: longest wait for the servers to open their files.
    """
    if run.is_in_memory(comms.layout.servers):
        return
    held = [(store.layout.bytes_with(store.frames), store.layout.file_bytes) for store in stores if store]
    with TimeLimit("all servers to open their files", timeout_s):
        of_ranks = comms.world.gather(held, root=ORACLE_RANK)
    if of_ranks is not None:
        memory_bytes, file_bytes = (sum(sizes) for sizes in zip(*chain(*of_ranks), strict=True))
        log.info(
            "rows are on disk: %.1f MB in files without a name in %s, %.1f MB of memory for those in use, on %d "
            "servers%s",
            file_bytes / 1e6,
            run.config.tables.ssd_path,
            memory_bytes / 1e6,
            comms.layout.servers,
            "; debug.ssd_path_in_memory: those files may take memory, too"
            if run.config.debug.ssd_path_in_memory
            else "",
        )


@contextmanager
def open_windows(
    run: Run, need: CacheNeed, comms: Communicators, stores: Sequence[DiskStore | None], timeout_s: float
) -> Iterator[list[RowWindow]]:
    """The ways to the rows of each group of tables, until the body ends. Collective over: all ranks.

    Args:
        run: its tables, records and settings.
        need: the window and the caches, by which transfers between hosts are tried.
        comms: this rank's communicators.
        stores: as `open_stores` gives them.
        timeout_s: longest wait for a transfer, and for the other ranks to open or close a window.
    """
    copies = None if comms.role is Role.ORACLE else row_copies(run.config.kernels.backend)
    routes = row_routes(run, comms)
    ways = settle_transfers(run, need, comms, routes, copies)
    with ExitStack() as opened:
        windows = []
        partitions = run.partitions(comms.layout.servers)
        for group, partition, store, transfers in zip(run.groups, partitions, stores, ways, strict=True):
            window = RowWindow(
                comms.world,
                routes,
                partition,
                group.record.width,
                timeout_s,
                transfers,
                copies,
                store,
                reads_ahead=run.config.tables.read_ahead,
            )
            windows.append(opened.enter_context(window))
        if comms.role is Role.TRAINER:
            log.info(windows[0].ways)
        yield windows
