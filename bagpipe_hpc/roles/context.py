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

    @property
    def checkpoints_timeout_s(self) -> float:
        """Longest wait for trainers: until one checkpoint is complete, and then for copies of the next one."""
        return 2 * self.fill_timeout_s

    @property
    def rows_timeout_s(self) -> float:
        """Longest wait for rows, and for a trainer that waits for them: on disk, rows may change after a checkpoint."""
        is_quick = self.run.is_in_memory(self.comms.layout.servers) or not self.run.trains
        return self.run.config.train.timeout_s if is_quick else self.checkpoints_timeout_s
