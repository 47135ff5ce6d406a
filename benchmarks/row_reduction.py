"""Which reduces cache rows faster among trainers, Horovod or MPI?

    scripts/run_ranks.sh 2 python benchmarks/row_reduction.py

Prints, for each number of rows, the median milliseconds of a summing reduction through `hvd.allreduce` and through a
non-blocking `Iallreduce` that is tested until it is done. The last line is one JSON object.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measuring.conditions import conditions
from mpi4py import MPI
from numpy.typing import NDArray

os.environ.setdefault("HOROVOD_CYCLE_TIME", "0.1")
import horovod.torch as hvd  # after mpi4py: Horovod must find MPI initialised
import torch

WARM_UP = 10


def through_mpi(comm: MPI.Comm, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    request = comm.Iallreduce(source, target)
    while not request.Test():
        time.sleep(0)


def median_ms(action: Callable[[], object], repeats: int) -> float:
    """Median over the repeats, of which all ranks start each together. Collective over: all ranks."""
    times = []
    for _ in range(WARM_UP + repeats):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM_UP:]) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=16, help="float32 numbers of a row (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=200, help="reductions, of which the median counts (default: 200)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD.Dup()
    hvd.init(comm=MPI.COMM_WORLD.Dup())
    results: dict[int, dict[str, Any]] = {}
    for rows in (16, 256, 1024, 4096, 16384, 65536):
        gradients = torch.ones(rows, arguments.width)
        total = np.empty((rows, arguments.width), dtype=np.float32)
        horovod = partial(hvd.allreduce_, gradients, op=hvd.Sum, name=f"rows{rows}")
        horovod_ms = median_ms(horovod, arguments.repeats)
        mpi_ms = median_ms(partial(through_mpi, comm, gradients.numpy(), total), arguments.repeats)
        results[rows] = {"horovod_ms": round(horovod_ms, 4), "mpi_ms": round(mpi_ms, 4)}
        if comm.rank == 0:
            row_bytes = arguments.width * 4
            print(f"{rows:7d} rows of {row_bytes} B: Horovod {horovod_ms:8.3f} ms, MPI {mpi_ms:8.3f} ms", flush=True)
    if comm.rank == 0:
        facts = {"trainers": comm.size, "width": arguments.width, "repeats": arguments.repeats}
        print(json.dumps(conditions() | facts | {"rows": results}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
