"""One rank's pytest, started by `tests/mpi/conftest.py`: rank 0 writes to the terminal, the others to a log each.

mpirun -n N python -m tests.launched_pytest LOG_FOLDER PYTEST_ARGUMENT...
"""

import os
import sys
from pathlib import Path

import pytest

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def world_rank() -> int:
    """This process's rank as its launcher tells it, before MPI is initialised."""
    for name in RANK_VARIABLES:
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit(f"not started by a known MPI launcher: none of {', '.join(RANK_VARIABLES)} is set")


def main(log_folder: Path, arguments: list[str]) -> int:
    """Run pytest with `arguments`; what native code writes is redirected as well, since the file descriptors are."""
    rank = world_rank()
    if rank > 0:
        log = os.open(log_folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, sys.stdout.fileno())
        os.dup2(log, sys.stderr.fileno())
    from tests.started_mpi import start_mpi  # importing it may start MPI

    start_mpi()
    # A folder of its own for each rank's temporary files, and no cache: the ranks would write the same files at once.
    return pytest.main([f"--basetemp={log_folder / f'tmp-{rank}'}", "-p", "no:cacheprovider", *arguments])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
