"""A warning before MPI starts where /dev/shm has too little for it: MPI dies there without a word of the cause."""

import os
import socket
from collections.abc import Mapping

_RANKS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_NUMBERS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_TASKS = "SLURM_STEP_TASKS_PER_NODE"
"""Slurm's variable, which speaks of all nodes: `2(x3),1`."""
_BYTES_A_RANK = 5_400_000
"""What MPICH 5.0.2 with UCX took there for 2, 5 and 8 ranks of a host, before and after their first messages."""


def shared_memory_warning(free_bytes: int, environment: Mapping[str, str] = os.environ) -> str:
    """What to say before MPI starts; empty where there is room, and on all ranks of a host but the launcher's first.

    With too little MPI_Init ended in SIGBUS or SIGSEGV, or the ranks took a slower way to each other.

    Args:
        free_bytes: in /dev/shm.
        environment: what the launcher says of the ranks of this host.
    """
    if next((environment[name] for name in _NUMBERS if name in environment), "0") != "0":
        return ""
    ranks = max([1, *_ranks_of_host(environment)])
    if free_bytes >= ranks * _BYTES_A_RANK:
        return ""
    return (
        f"bagpipe: warning: /dev/shm on {socket.gethostname()} has {free_bytes / 1e6:.1f} MB free, and MPI takes up to "
        f"{ranks * _BYTES_A_RANK / 1e6:.1f} MB there for {ranks} ranks: it may be slow, or end in a bus error or a "
        "segmentation fault. Remove what is left there of ended jobs, or make it larger (mount -o remount,size=...; of "
        "a container: --shm-size)\n"
    )


def _ranks_of_host(environment: Mapping[str, str]) -> list[int]:
    """Numbers of ranks by each variable that is set; Slurm's has one for each of several nodes."""
    told = [environment.get(name, "") for name in _RANKS]
    told += [part.partition("(")[0] for part in environment.get(_TASKS, "").split(",")]
    return [int(number) for number in told if number.isdecimal()]
