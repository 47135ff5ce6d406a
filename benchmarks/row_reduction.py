"""Which reduces cache rows faster among trainers, Horovod or MPI?

    scripts/run_ranks.sh 2 python benchmarks/row_reduction.py

Prints, for each number of rows, the median milliseconds of a summing reduction through `hvd.allreduce`, through the
trainers' own `GradientReducer` over MPI, and through a bare `Iallreduce` that is tested until it is done. The last line
is one JSON object.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.tools.conditions import conditions

os.environ.setdefault("HOROVOD_CYCLE_TIME", "0.1")
import horovod.torch as hvd  # after mpi4py: Horovod must find MPI initialised
import torch

from bagpipe_hpc.mpi.reduction import GradientReducer

WARM_UP = 10
TIMEOUT_S = 60.0


def through_reducer(reducer: GradientReducer, gradients: NDArray[np.float32]) -> None:
    reducer.start(gradients).wait("a sum of the benchmark")


def through_iallreduce(comm: MPI.Comm, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
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
    reducer = GradientReducer(MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup(), TIMEOUT_S, lambda: None)
    hvd.init(comm=MPI.COMM_WORLD.Dup())
    results: dict[int, dict[str, float]] = {}
    for rows in (16, 256, 1024, 4096, 16384, 65536):
        gradients = torch.ones(rows, arguments.width)
        total = np.empty((rows, arguments.width), dtype=np.float32)
        contenders = {
            "horovod": partial(hvd.allreduce_, gradients, op=hvd.Sum, name=f"rows{rows}"),
            "reducer": partial(through_reducer, reducer, np.ones_like(total)),
            "iallreduce": partial(through_iallreduce, comm, np.ones_like(total), total),
        }
        times = {name: median_ms(action, arguments.repeats) for name, action in contenders.items()}
        results[rows] = {f"{name}_ms": round(time_ms, 4) for name, time_ms in times.items()}
        if comm.rank == 0:
            figures = ", ".join(f"{name} {time_ms:8.3f} ms" for name, time_ms in times.items())
            print(f"{rows:7d} rows of {arguments.width * 4} B: {figures}", flush=True)
    if comm.rank == 0:
        facts = {"trainers": comm.size, "width": arguments.width, "repeats": arguments.repeats}
        print(json.dumps(conditions() | facts | {"rows": results}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
