"""Which Slurm job has begun the run in an output folder. Standard library only.

A job that comes again goes on with what its earlier starts have saved. But it may have been sent back before any of
them began the run: then what lies in the folder is another run's, and the job starts as it was told to.
"""

import contextlib
import os
from pathlib import Path

from bagpipe_hpc.storage.atomic_write import atomic_write

MARK_NAME = "slurm_job"


def mark_job(output: Path) -> None:
    """Note that this process's job has begun the run; outside of a job that none has.

    Raises:
        OSError: the folder cannot be written.
    """
    if job := _this_job():
        with atomic_write(output / MARK_NAME) as path:
            path.write_text(f"{job}\n", encoding="utf-8")
    else:
        (output / MARK_NAME).unlink(missing_ok=True)


def is_of_this_job(output: Path) -> bool:
    """Whether a start of this process's job has begun the run in a folder."""
    with contextlib.suppress(OSError):
        job = _this_job()
        return bool(job) and (output / MARK_NAME).read_bytes() == f"{job}\n".encode()
    return False


def _this_job() -> str:
    """Of a heterogeneous job the number of the whole: its components have one each."""
    return os.environ.get("SLURM_HET_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
