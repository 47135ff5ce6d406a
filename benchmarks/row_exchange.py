"""How long do messages of rows between trainers take, directly and over a grid?

    scripts/run_ranks.sh 2 python benchmarks/row_exchange.py
    python benchmarks/row_exchange.py                             # without what carries messages between processes

Both ranks are one of T trainers each, and take each other for all the others, so that a rank does what a trainer does:
it sends its rows to T - 1 others, takes theirs in and, over a grid, passes rows on. A call for many trainers has as
many messages between the two ranks (MPI_Ineighbor_alltoallv in place of MPI_Ialltoallv), and messages that native code
sends within a column go to the other rank. Prints, of an exchange from its start until all rows have come and gone, the
shortest and the median time, of ranks that test without sleeping, and the processor time of one rank: it begins, and
tests once whenever the other rank has begun or tested, so that it never does in vain. The last line is one JSON object.
What links between hosts and other trainers take is not in it. A single rank takes itself for all others.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.kernels.grid_hops import grid_hops
from bagpipe_hpc.mpi.rows.column_messages import messages_by_address
from bagpipe_hpc.mpi.rows.exchange import Arrival, RowExchange
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.plan.exchange import Flow, Kind
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.plan.grid_hops import MessagesByAddress
from bagpipe_hpc.tools.conditions import conditions

WARM_UP = 10
_SLEEP_S = 50e-6
_MOST_ROWS = 1 << 10
"""Of a grid."""

_Pieces = tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]
"""Rows, and of each trainer how many numbers, and where they begin."""


def _other() -> int:
    """The rank that stands for all other trainers."""
    return (MPI.COMM_WORLD.Get_rank() + 1) % MPI.COMM_WORLD.Get_size()


class OneAndOthers:
    """A communicator of several trainers on two ranks; this one is trainer 0, and the other rank all others.

    Args:
        trainers: their number.
    """

    def __init__(self, trainers: int) -> None:
        own = MPI.COMM_WORLD.Get_rank()
        self._trainers = trainers
        ranks = [own, *[_other()] * (trainers - 1)]
        self._neighbours = MPI.COMM_WORLD.Create_dist_graph_adjacent(ranks, ranks)

    def Get_rank(self) -> int:  # noqa: N802 - as in mpi4py
        """Number of this trainer."""
        return 0

    def Get_size(self) -> int:  # noqa: N802
        """Number of trainers."""
        return self._trainers

    def Ialltoallv(self, sends: _Pieces, takes: _Pieces) -> MPI.Request:  # noqa: N802
        """Start to send to all trainers, and to receive from them."""
        return self._neighbours.Ineighbor_alltoallv(sends, takes)

    def Free(self) -> None:  # noqa: N802
        """Give back what MPI keeps for it. Collective over: both ranks."""
        self._neighbours.Free()


def to_other(_: MPI.Comm) -> MessagesByAddress | None:
    """How native code sends to the other rank what is for any trainer of a column."""
    found = messages_by_address(MPI.COMM_WORLD)
    return found and found._replace(ranks=np.full(_MOST_ROWS, _other(), dtype=np.int32))


class Meeting:
    """Where both ranks wait for each other without calling MPI, which would move messages on.

    Args:
        path: of a file for it, the same for both ranks.
    """

    def __init__(self, path: Path) -> None:
        self._own, self._other = MPI.COMM_WORLD.Get_rank(), _other()
        self._seen = np.memmap(path, dtype=np.int64, mode="r+", shape=(2, 2))  # of odd and even meetings, by rank
        self._met = 0

    def meet(self, *, is_done: bool) -> bool:
        """Wait for the other rank. Returns whether both are done. Collective over: both ranks."""
        self._met += 1
        seen = self._seen[self._met % 2]
        seen[self._own] = 2 * self._met + is_done
        while seen[self._other] < 2 * self._met:
            time.sleep(_SLEEP_S)
        return is_done and bool(seen[self._other] % 2)


class Times(NamedTuple):
    """Microseconds of an exchange."""

    elapsed: float
    processor: float


def measure(grid: Grid, rows: int, width: int, repeats: int, meeting: Meeting) -> list[Times]:
    """Exchange `rows` rows between each two trainers. Collective over: both ranks."""
    comms = GridComms(*map(OneAndOthers, (grid.columns, grid.rows)))  # type: ignore[arg-type] # as much as is used
    exchange = RowExchange([comms] * len(Kind), grid_hops("auto"), to_other)
    to = np.full(grid.trainers, rows, dtype=np.int32)
    relayed = np.full((grid.columns, 0 if grid.is_direct else grid.rows), rows, dtype=np.int32)
    to[0] = relayed[:1, :1] = 0
    flow = Flow(grid, to, to, relayed)

    def begin() -> Arrival:
        return exchange.exchange(Kind.NOW_GRADIENTS, sent, flow, taken)

    times = []
    for _ in range(WARM_UP + repeats):
        sent, taken = (np.ones((to.sum(), width), dtype=np.float32) for _ in range(2))
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        arrival = begin()
        while not arrival.is_complete():
            pass
        elapsed = time.perf_counter() - start
        times.append(Times(elapsed * 1e6, _processor_s(begin, meeting) * 1e6))
        exchange.free_spent()
    comms.free()
    return times[WARM_UP:]


def _processor_s(begin: Callable[[], Arrival], meeting: Meeting) -> float:
    """Processor time of this rank for an exchange. Collective over: both ranks."""
    meeting.meet(is_done=False)
    start = time.process_time()
    arrival, is_done, spent = begin(), False, 0.0
    while True:
        spent += time.process_time() - start
        if meeting.meet(is_done=is_done):
            return spent
        start = time.process_time()
        is_done = arrival.is_complete()


def _measure_all(arguments: argparse.Namespace, meeting: Meeting) -> Iterator[dict[str, Any]]:
    for trainers, rows in itertools.product(arguments.trainers, arguments.rows):
        for grid in dict.fromkeys((Grid.direct(trainers), Grid.balanced(trainers))):
            times = measure(grid, rows, arguments.width, arguments.repeats, meeting)
            elapsed, processor = (sorted(values) for values in zip(*times, strict=True))
            middle = len(times) // 2
            if MPI.COMM_WORLD.Get_rank() == 0:
                print(
                    f"{grid.rows:3d} x {grid.columns:3d} trainers, {rows:3d} rows to each: {elapsed[0]:7.0f} us at "
                    f"best, median {elapsed[middle]:7.0f}; processor {processor[0]:7.0f}, median "
                    f"{processor[middle]:7.0f}, {processor[0] / grid.messages:5.1f} a message",
                    flush=True,
                )
            yield {
                "grid": grid,
                "rows": rows,
                "best_us": round(elapsed[0], 1),
                "median_us": round(elapsed[middle], 1),
                "best_processor_us": round(processor[0], 1),
                "median_processor_us": round(processor[middle], 1),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", type=int, nargs="+", default=[16, 64, 128, 256], help="(default: 16 64 128 256)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64], help="to each one (default: 1 4 16 64)")
    parser.add_argument("--width", type=int, default=64, help="float32 numbers of a row (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=200, help="exchanges of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    if MPI.COMM_WORLD.Get_size() > 2:
        parser.error(f"{MPI.COMM_WORLD.Get_size()} ranks: start one or two")
    keep_all_freed_memory()
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(32))
        file.flush()
        meeting = Meeting(Path(MPI.COMM_WORLD.bcast(file.name)))
        results = list(_measure_all(arguments, meeting))
        MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.Get_rank() == 0:
        facts = {"width": arguments.width, "repeats": arguments.repeats}
        print(json.dumps(conditions() | facts | {"exchanges": results}))


if __name__ == "__main__":
    main()
