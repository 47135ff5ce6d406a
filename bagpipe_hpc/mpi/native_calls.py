"""What native code that calls MPI is told of it: where functions are, and how large handles.

Libraries of `kernels/csrc` link no MPI. They call the one that mpi4py has loaded, by the addresses of its functions.
"""

import ctypes
from typing import Any

from mpi4py import MPI

HANDLE_BYTES: int = MPI._sizeof(MPI.Request)
"""Of a handle: 4 in MPICH and its kin, 8 elsewhere."""
STATUS_BYTES: int = MPI._sizeof(MPI.Status)
"""Of an `MPI_Status`."""


def address_of(function: str) -> int | None:
    """Address of a function of MPI, by its name in C; None where it is not to be found."""
    try:
        found = getattr(ctypes.CDLL(MPI.__file__), function)
    except (AttributeError, OSError):
        return None
    return ctypes.cast(found, ctypes.c_void_p).value


def handle_of(opaque: Any) -> int:
    """The handle of a request, a communicator or a type, as a whole number."""
    handle: int = MPI._handleof(opaque)
    return handle
