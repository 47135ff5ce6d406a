"""Which reduces cache rows faster among trainers, Horovod or MPI? Run as `mpirun -n 2 python benchmarks/row_reduction.py`.

Prints, for each number of rows, the median milliseconds of a summing reduction through `hvd.allreduce` and through a non-blocking
`Iallreduce` that is tested with back-off; the last line is one JSON object.
"""

import json
import os
import statistics
import time

import numpy as np
from mpi4py import MPI

os.environ.setdefault("HOROVOD_CYCLE_TIME", "0.1")
import horovod.torch as hvd  # after mpi4py: Horovod must find MPI initialised
import torch

WIDTH = 16
REPEATS = 200


def median_ms(action) -> float:
    times = []
    for _ in range(REPEATS):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times[10:]) * 1e3


def main() -> None:
    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD.Dup()
    hvd.init(comm=MPI.COMM_WORLD.Dup())
    results = {}
    for rows in (16, 256, 1024, 4096, 16384, 65536):
        gradients = torch.ones(rows, WIDTH)
        total = np.empty((rows, WIDTH), dtype=np.float32)

        def through_mpi(source=gradients.numpy(), target=total) -> None:
            request = comm.Iallreduce(source, target)
            while not request.Test():
                time.sleep(0)

        horovod_ms = median_ms(
            lambda rows=rows, tensor=gradients: hvd.allreduce_(tensor, op=hvd.Sum, name=f"rows{rows}")
        )
        mpi_ms = median_ms(through_mpi)
        results[rows] = {"horovod_ms": round(horovod_ms, 4), "mpi_ms": round(mpi_ms, 4)}
        if comm.rank == 0:
            print(f"{rows:7d} rows of {WIDTH * 4} B: Horovod {horovod_ms:8.3f} ms, MPI {mpi_ms:8.3f} ms", flush=True)
    if comm.rank == 0:
        print(json.dumps({"trainers": comm.size, "width": WIDTH, "rows": results}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
