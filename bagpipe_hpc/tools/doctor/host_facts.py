"""What the ranks of a host found out about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostFacts:
    """What the ranks of a host found out about it.

    Attributes:
        host: its name.
        ranks: number of ranks there.
        cores: cores that they may use, together.
        free_bytes: free memory.
        shared_bytes: free space in /dev/shm.
        gpus: names of GPUs that a rank sees; None where no rank has looked.
        versions: versions of Python, MPI and packages; empty for one that is absent.
        thread_level: thread level that MPI gives.
        not_built: native libraries that are missing.
        write_bytes_per_s: speed of writing to the output folder; 0 where writing failed, None where nothing is written.
        write_error: why writing failed.
        mixed: packages whose versions differ between ranks of the host.
        installed_gpus: number of GPUs that the driver has there.
    """

    host: str
    ranks: int
    cores: int
    free_bytes: int
    shared_bytes: int
    gpus: tuple[str, ...] | None
    versions: dict[str, str]
    thread_level: str
    not_built: tuple[str, ...]
    write_bytes_per_s: float | None
    write_error: str
    mixed: tuple[str, ...] = ()
    installed_gpus: int = 0
