"""How soon is a sum of dense gradients there if a mover moves it on, a thread of its own, or the thread that waits?

    scripts/run_ranks.sh 2 python benchmarks/sums_thread.py

Two ranks, one a core, sum over two levels, as over a grid: each level's groups are both ranks, so a sum has four hops
of a message each. Both begin together, and the thread that has begun it sleeps, as one that computes leaves the
interpreter alone. Prints the median microseconds from the beginning to the end, the processor time of the rank while it
sums, and how long the call took that began the sum; who moves sums on takes turns. The last line is one JSON object.
"""

import argparse
import json
import math
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.pending_sum import PendingSum
from bagpipe_hpc.mpi.reduction import GradientReducer, SumComms
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import TESTS_A_WAKE, Haste, nothing_to_watch
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.roles.request_waits import open_watch
from bagpipe_hpc.roles.trainer.sums_thread import SumsThread
from bagpipe_hpc.tools.conditions import conditions

WARM_UP = 10
TIMEOUT_S = 60.0


class LevelledReducer(GradientReducer):
    """Adds shares level by level, also among two."""

    def start_shares(self, gradients: NDArray[np.float32]) -> PendingSum:
        """Start a sum in place."""
        stages = self._add_shares(self._levels, gradients, gradients)
        self._newest = PendingSum(
            stages, 2 * len(self._levels), self._newest, self._lock, TIMEOUT_S, nothing_to_watch, self._spent
        )
        return self._newest


class Watched:
    """One sum as `DenseUnderWay`, whose end is noted."""

    def __init__(self, reducer: LevelledReducer) -> None:
        self.reducer = reducer
        self.pending: PendingSum | None = None
        self.end_s = math.nan
        self.is_there = threading.Event()

    def advance(self) -> Haste:
        """Move it on."""
        pending = self.pending
        if pending is None:
            return Haste.NONE
        self.reducer.advance()
        if not pending.is_complete:
            return Haste.SOON
        self.end_s, self.pending = time.perf_counter(), None
        self.is_there.set()
        return Haste.NONE

    def awaited(self) -> list[Awaited]:
        """What it goes on behind."""
        return self.reducer.awaited() if self.pending else []


class Sample(NamedTuple):
    """Microseconds of one sum: until it had begun, until it was there, and of the processor."""

    begun: float
    elapsed: float
    processor: float


def moved_on(watched: Watched, ring: Callable[[], None], gradients: NDArray[np.float32]) -> Sample:
    """Start a sum that another thread moves on."""
    cpu_s, start_s = time.process_time(), time.perf_counter()
    watched.is_there.clear()
    watched.pending = watched.reducer.start_shares(gradients)
    begun_s = time.perf_counter()
    ring()
    watched.is_there.wait()
    return Sample(*(1e6 * s for s in (begun_s - start_s, watched.end_s - start_s, time.process_time() - cpu_s)))


def waited_for(reducer: LevelledReducer, gradients: NDArray[np.float32]) -> Sample:
    """Start a sum and wait for it."""
    cpu_s, start_s = time.process_time(), time.perf_counter()
    pending = reducer.start_shares(gradients)
    begun_s = time.perf_counter()
    pending.wait("a sum of the benchmark")
    end_s = time.perf_counter()
    reducer.advance()
    return Sample(*(1e6 * s for s in (begun_s - start_s, end_s - start_s, time.process_time() - cpu_s)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200, help="sums, of which the median counts (default: 200)")
    parser.add_argument("--kib", type=int, nargs="+", default=[4, 256, 1024, 4096], metavar="N", help="of gradients")
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.Get_size() != len(("one", "other")):
        parser.error("start it on two ranks")

    def new_reducer() -> LevelledReducer:
        first, second = (SumComms(comm.Dup(), comm.Dup()) for _ in range(2))
        return LevelledReducer(*first, above=[second])

    by_mover, by_thread, by_waiting = Watched(new_reducer()), Watched(new_reducer()), new_reducer()
    pace, thread = MoverPace.open("auto", has_core=True), SumsThread(open_watch("auto", TESTS_A_WAKE))
    is_over = False

    def mover() -> None:
        while not is_over:
            pace.begin_round()
            haste = by_mover.advance()
            while not pace.rest(haste, by_mover.awaited()):
                haste = by_mover.advance()

    moving = threading.Thread(target=mover, daemon=True)
    moving.start()
    thread.move_on(by_thread)
    found = {}
    for kib in arguments.kib:
        gradients = np.ones((256 * kib, 1), dtype=np.float32)
        contenders: dict[str, Callable[[], Sample]] = {
            "mover": partial(moved_on, by_mover, pace.ring, gradients),
            "thread": partial(moved_on, by_thread, thread.ring, gradients),
            "waiting": partial(waited_for, by_waiting, gradients),
        }
        samples: dict[str, list[Sample]] = {name: [] for name in contenders}
        for _ in range(WARM_UP + arguments.repeats):
            for name, contender in contenders.items():
                gradients[:] = 1
                comm.Barrier()
                samples[name].append(contender())
        found[kib] = {
            name: Sample(*(round(statistics.median(of)) for of in zip(*each[WARM_UP:], strict=True)))._asdict()
            for name, each in samples.items()
        }
        if comm.Get_rank() == 0:
            figures = ", ".join(
                f"{name} {us['elapsed']} us ({us['processor']}; {us['begun']})" for name, us in found[kib].items()
            )
            print(f"{kib:5d} KiB: {figures}", flush=True)
    is_over = True
    pace.ring()
    moving.join()
    thread.stop()
    if comm.Get_rank() == 0:
        print(json.dumps({"benchmark": "sums_thread", **conditions(), "us": found}))


if __name__ == "__main__":
    main()
