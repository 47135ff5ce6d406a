"""Starts MPI where importing mpi4py does not: a fork finds it imported, by a server that starts none."""

from mpi4py import MPI


def start_mpi() -> None:
    """Start MPI unless it runs already; it ends with this process."""
    if not MPI.Is_initialized():
        MPI.Init_thread()
