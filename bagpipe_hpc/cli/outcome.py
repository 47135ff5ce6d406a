"""How a command ends: its exit code, and what it says when it fails, once for all ranks that a launcher started."""

import os
import socket
import sys
import time
from collections.abc import Callable

from bagpipe_hpc.cli.streams import safe_streams
from bagpipe_hpc.errors import BagpipeError, ConfigError, lacking_threads, met_limit, naming_files
from bagpipe_hpc.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK
from bagpipe_hpc.terminal import line_start, printable

_PACKAGES = ("h5py", "mpi4py", "numpy", "pyarrow", "rich", "torch")
"""Packages that commands import when they run, and that may not be installed."""
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_HOST_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_FIRST_RANK_HEAD_START_S = 1.0
"""Launchers kill all ranks when one exits with an error: the rank that prints it must be the first to exit."""


def exit_code_of(command: Callable[[], int], program: str, after_interrupt: Callable[[], str] = str) -> int:
    """Run a command to its end, and print the error that ended it.

    Args:
        command: does the work and returns an exit code.
        program: name that messages begin with.
        after_interrupt: says what to do after Ctrl-C; follows the word `interrupted`.

    Returns:
        What `command` returns, or `EXIT_ERROR` or `EXIT_INTERRUPTED`; `EXIT_OK` where the reader of stdout has gone.
    """
    with safe_streams():
        try:
            with naming_files():
                code = command()
            sys.stdout.flush()
            return code
        except BagpipeError as error:
            print_error(error, program)
            return EXIT_ERROR
        except ModuleNotFoundError as error:
            if error.name not in _PACKAGES:
                raise
            if speaks_for_host():  # another may have it
                where = socket.gethostname()
                told = f"{error.name} is not installed on {where}; `bagpipe doctor` says how to get what is missing"
                print_error(BagpipeError(told), program)
            return EXIT_ERROR
        except KeyboardInterrupt:
            if (limit := lacking_threads()) is not None:  # OpenBLAS then interrupts its own process
                print_error(limit, program)
                return EXIT_ERROR
            print(f"\n{program}: interrupted{after_interrupt()}", file=sys.stderr)
            return EXIT_INTERRUPTED
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            return EXIT_OK
        except Exception as error:
            if (limit := met_limit(error)) is None:
                raise
            print_error(limit, program)
            return EXIT_ERROR


def print_error(error: BagpipeError, program: str = "bagpipe") -> None:
    """Say on the terminal why a command fails."""
    print(f"{line_start()}{program}: error: {printable(str(error))}", file=sys.stderr)


def is_first_rank() -> bool:
    """Whether the launcher numbers this process 0, or no launcher started it; asks the environment, not MPI.

    On any other rank it returns only after the first rank has had time to print.
    """
    rank = next((os.environ[name] for name in _RANK_VARIABLES if name in os.environ), "0")
    if rank == "0":
        return True
    time.sleep(_FIRST_RANK_HEAD_START_S)
    return False


def launched_ranks() -> int | None:
    """How many processes the launcher started, 1 without one, None where it does not say; asks the environment alone.

    A batch script of Slurm is one process, however many tasks its job has, and so is what a user types behind `srun
    --pty`: only the first task has the terminal.
    """
    for name in _SIZE_VARIABLES:
        if name.startswith("SLURM_") and "SLURM_PTY_PORT" in os.environ:
            continue
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None if "PMIX_RANK" in os.environ else 1


def is_torn() -> bool:
    """Whether each process that the launcher started is a world of its own for MPI, which must be running.

    Each would do all of the work by itself, and write to the same places. The first of them prints the error.
    """
    launched = launched_ranks()
    if launched in (None, 1):
        return False

    from bagpipe_hpc.mpi.start.world import world_size

    if world_size() > 1:
        return False
    if is_first_rank():
        told = (
            f"the launcher started {launched} processes, but MPI sees one: start them with the mpirun of the MPI that "
            "is in use, or with srun --mpi=TYPE (srun --mpi=list shows the types)"
        )
        print_error(ConfigError(told))
    return True


def speaks_for_host() -> bool:
    """As `is_first_rank`, for the first rank of each host."""
    if is_first_of_host():
        return True
    time.sleep(_FIRST_RANK_HEAD_START_S)
    return False


def is_first_of_host() -> bool:
    """Whether the launcher numbers this process 0 on its host, or says nothing of that."""
    return next((os.environ[name] for name in _HOST_RANK_VARIABLES if name in os.environ), "0") == "0"
