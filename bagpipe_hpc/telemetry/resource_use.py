"""What a rank has used of its machine: memory, processor time, page faults; and how long it did what."""

import json
import resource
from dataclasses import asdict, dataclass
from pathlib import Path

from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.time_limit import TimeLimit
from bagpipe_hpc.storage.output_errors import writing


@dataclass(frozen=True)
class ResourceUse:
    """Sums and peaks of one process so far.

    Attributes:
        peak_bytes: largest resident memory, with what it shares with other processes.
        shared_bytes: resident shared memory at the time of the call: windows and MPI's own buffers. Every rank that
            touched a page counts it.
        processor_s: processor time of all threads, user and system.
        page_faults: pages that the kernel had to map without reading them from a disk.
    """

    peak_bytes: int
    shared_bytes: int
    processor_s: float
    page_faults: int

    @classmethod
    def now(cls) -> "ResourceUse":
        """The use of this process, up to now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(usage.ru_maxrss * 1024, _shared_bytes(), usage.ru_utime + usage.ru_stime, usage.ru_minflt)


def _shared_bytes() -> int:
    """`RssShmem` of /proc/self/status; 0 where the kernel does not tell."""
    try:
        # The program's name is in it, which may have any bytes.
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    kib = (line.split()[1] for line in lines if line.startswith("RssShmem:"))
    return int(next(kib, "0")) * 1024


def save_resources(path: Path, comms: Communicators, spans_s: dict[str, float]) -> None:
    """Write what each rank has used. Collective over: all ranks, which have just left a barrier.

    Args:
        path: the file.
        comms: this rank's communicators.
        spans_s: seconds of what this rank did (`Trace.sums_s`).

    Raises:
        OutputError: on the oracle: the file cannot be written.
    """
    of_rank = {"role": comms.role.value, "role_rank": comms.role_rank, "host": comms.host}
    own = of_rank | asdict(ResourceUse.now()) | {"spans_s": spans_s}
    with TimeLimit("all ranks to say what they have used", comms.timeout_s):
        ranks = comms.world.gather(own, root=0)
    if ranks is not None:
        with writing(path):
            path.write_text(json.dumps({"ranks": ranks}, indent=1) + "\n", encoding="utf-8")
