"""Opens the way in which a trainer keeps the rows that several trainers use, as `cache.sharing` says."""

from collections.abc import Callable

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.kernels.grid_hops import grid_hops
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.reduction import GradientReducer
from bagpipe_hpc.mpi.rows.exchange import RowExchange
from bagpipe_hpc.mpi.rows.host_chain import HostChain
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.planning.sharing_choice import HOME, has_homes
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.sharing.contract import RowSharing, RowUpdates
from bagpipe_hpc.step.sharing.home_rows import HomeRows
from bagpipe_hpc.step.sharing.lone_rows import LoneRows
from bagpipe_hpc.step.sharing.replicated_rows import ReplicatedRows
from bagpipe_hpc.step.sharing.row_sums import RowSums
from bagpipe_hpc.step.sharing.tiered_rows import TieredRows


def open_row_sharing(
    config: Config,
    comms: Communicators,
    parts: ComputeParts,
    updates: RowUpdates,
    waits: Waits,
    ring: Callable[[], None],
) -> RowSharing:
    """Rows with one home, rows that every trainer caches, or both; or those of a trainer that is alone.

    Args:
        config: of the run, `cache.sharing` settled.
        comms: of this trainer.
        parts: caches, and the device that they are on.
        updates: applies what is summed.
        waits: how the compute thread waits for other trainers.
        ring: tells the mover that it has something to move on.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    trainers, sharing = comms.layout.trainers, config.cache.sharing
    short = None if trainers == 1 else short_floats(config.train.row_sums, config.train.batch_size)

    def everywhere() -> ReplicatedRows:
        new_array = parts.device.new_array
        reducer = GradientReducer(comms.trainers, comms.gathering, waits.timeout_s, waits.watch, new_array, short)
        return ReplicatedRows(updates, RowSums(reducer, parts.device, short, ring))

    if not has_homes(sharing):
        return LoneRows(updates) if trainers == 1 else everywhere()
    exchange = RowExchange(comms.exchanges, grid_hops(config.kernels.backend))
    chains = HostChain(comms.gathering, 0), HostChain(comms.gathering, 1)
    at_homes = HomeRows(parts.caches, updates, exchange, trainers, short, waits, chains, ring)
    return at_homes if sharing == HOME else TieredRows(everywhere(), at_homes)
