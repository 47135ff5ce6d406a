"""What every role starts with, once the run is prepared."""

from dataclasses import dataclass

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.run.purpose import Purpose
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.trace import Trace


@dataclass(frozen=True)
class RoleContext:
    """The run as one rank sees it.

    Attributes:
        purpose: of the run; the first trainer tells of it.
        run: settings, data and schedule, as all ranks know them.
        need: the window and the cache's capacities.
        comms: this rank's communicators.
        trace: this rank's timeline.
        fill_timeout_s: longest wait for servers to fill or save their partitions.
    """

    purpose: Purpose
    run: Run
    need: CacheNeed
    comms: Communicators
    trace: Trace
    fill_timeout_s: float
