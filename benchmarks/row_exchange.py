"""How long do messages of rows between trainers take, directly and over a grid?

    scripts/run_ranks.sh 2 python benchmarks/row_exchange.py

Both ranks are one of T trainers each, and take each other for all the others, so that a rank does what a trainer does:
it sends its rows to T - 1 others, takes theirs in and, over a grid, passes rows on. What goes directly by one call has
T - 1 messages between the two ranks (MPI_Ineighbor_alltoallv in place of MPI_Ialltoallv). Prints the shortest and the
median time of an exchange, from its start until all rows have come and gone; ranks test without sleeping. The last line
is one JSON object. What links between hosts and other trainers take is not in it.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.mpi.rows.exchange import RowExchange
from bagpipe_hpc.plan.exchange import Flow, Kind
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.tools.conditions import conditions

WARM_UP = 10
_COLUMN_TAGS = 1000
"""From here on: tags within a column of the grid, since one rank stands for trainers of the row and of the column."""

_Pieces = tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]
"""Rows, and of each trainer how many numbers, and where they begin."""


class TwoForAll:
    """A communicator of T trainers on two ranks; this one is trainer 0, and the other rank all others.

    Args:
        grid: of the trainers.
    """

    def __init__(self, grid: Grid) -> None:
        self._columns = grid.columns
        self._own = MPI.COMM_WORLD.Get_rank()
        others = [1 - self._own] * (grid.trainers - 1)
        self._neighbours = MPI.COMM_WORLD.Create_dist_graph_adjacent(others, others)

    def Get_rank(self) -> int:  # noqa: N802 - as in mpi4py
        """Number of this trainer."""
        return 0

    def Isend(self, rows: NDArray[Any], dest: int, tag: int) -> MPI.Request:  # noqa: N802
        """Start to send."""
        rank, tag = self._at(dest, tag)
        return MPI.COMM_WORLD.Isend(rows, dest=rank, tag=tag)

    def Irecv(self, rows: Any, source: int, tag: int) -> MPI.Request:  # noqa: N802
        """Start to receive."""
        rank, tag = self._at(source, tag)
        return MPI.COMM_WORLD.Irecv(rows, source=rank, tag=tag)

    def Ialltoallv(self, sends: _Pieces, takes: _Pieces) -> MPI.Request:  # noqa: N802
        """Start to send to all trainers but this one, and to receive from them."""
        (sent, (counts, starts)), (taken, (coming, places)) = sends, takes
        return self._neighbours.Ineighbor_alltoallv([sent, (counts[1:], starts[1:])], [taken, (coming[1:], places[1:])])

    def free(self) -> None:
        """Give back what MPI keeps for it. Collective over: both ranks."""
        self._neighbours.Free()

    def _at(self, trainer: int, tag: int) -> tuple[int, int]:
        rank = self._own if trainer == 0 else 1 - self._own
        return rank, tag + (0 if trainer < self._columns else _COLUMN_TAGS)


def times_us(grid: Grid, rows: int, width: int, repeats: int) -> list[float]:
    """Microseconds of exchanges of `rows` rows between each two trainers. Collective over: both ranks."""
    trainers = TwoForAll(grid)
    exchange = RowExchange([trainers] * len(Kind))  # type: ignore[list-item] # all of a communicator that it uses
    to = np.full(grid.trainers, rows)
    relayed = np.full((grid.columns, 0 if grid.is_direct else grid.rows), rows)
    to[0] = relayed[:1, :1] = 0
    flow = Flow(grid, to, to, relayed)
    times = []
    for _ in range(WARM_UP + repeats):
        sent, taken = (np.ones((to.sum(), width), dtype=np.float32) for _ in range(2))
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        arrival = exchange.exchange(Kind.NOW_GRADIENTS, 0, sent, flow, taken)
        while not (arrival.is_complete() and exchange.has_sent_all):
            pass
        times.append((time.perf_counter() - start) * 1e6)
    trainers.free()
    return times[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", type=int, nargs="+", default=[16, 64, 128, 256], help="(default: 16 64 128 256)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64], help="to each one (default: 1 4 16 64)")
    parser.add_argument("--width", type=int, default=64, help="float32 numbers of a row (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=200, help="exchanges of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    if MPI.COMM_WORLD.Get_size() != 2:
        parser.error(f"{MPI.COMM_WORLD.Get_size()} ranks: start two")
    keep_all_freed_memory()
    results = []
    for trainers in arguments.trainers:
        for rows in arguments.rows:
            for grid in dict.fromkeys((Grid.direct(trainers), Grid.balanced(trainers))):
                times = times_us(grid, rows, arguments.width, arguments.repeats)
                best, median = min(times), statistics.median(times)
                results.append({"grid": grid, "rows": rows, "best_us": round(best, 1), "median_us": round(median, 1)})
                if MPI.COMM_WORLD.Get_rank() == 0:
                    print(
                        f"{grid.rows:3d} x {grid.columns:3d} trainers, {rows:3d} rows to each: {best:7.0f} us at best, "
                        f"{best / grid.messages:5.1f} a message, median {median:7.0f}",
                        flush=True,
                    )
    if MPI.COMM_WORLD.Get_rank() == 0:
        facts = {"width": arguments.width, "repeats": arguments.repeats}
        print(json.dumps(conditions() | facts | {"exchanges": results}))


if __name__ == "__main__":
    main()
