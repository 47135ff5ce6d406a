"""What each rank of `python -m benchmarks store` does: gets and puts rows, in turn with plain copies of the same size.

    mpirun -n N python -m benchmarks.store.ranks '{"servers": 1, ...}'

World rank 0 prints one line of JSON: for each row size and way, rows per second of every operation in every run, added
up over the trainers, which work at the same time, and microseconds of servers' and trainers' processor time for a row.
"""

import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.cluster.role_layout import Role, RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.cluster.row_routes import RowRoutes
from bagpipe_hpc.kernels.rows.row_copies import row_copies
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.rows.transfer import PendingRows
from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.mpi.waiting import Haste, Polls, serve_until_barrier, wait_for_barrier
from bagpipe_hpc.roles.mover.pace import MoverPace
from bagpipe_hpc.rows.partition import RoundRobinPartition

NEAR = "loads"
"""The way through memory that both share; the other ways are those of `roles.transfers`."""

_TIMEOUT_S = 120.0
_LONGEST_PASS_S = 1.0
"""A pass over a slow link ends early: its rate counts all the same."""
_TAG_READY = 11
_TAG_PLAIN = 12

Rates = dict[str, list[float]]
"""Rows per second of each operation, in every run; or another figure of each."""


class Pass(NamedTuple):
    """One operation in one run, on one rank; a server moves no rows of its own.

    Attributes:
        rows: that a trainer moved.
        seconds: it took for that.
        cpu_s: processor time of the rank until all ranks were done.
    """

    rows: int
    seconds: float
    cpu_s: float


Passes = dict[str, list[Pass]]
"""Of each operation, in every run."""

_NOTHING = (0, 0.0)


class Measurement(TypedDict):
    """What the trainers of one world reached with rows of one size, moved one way."""

    row_bytes: int
    way: str
    rows_per_s: Rates
    cpu_us_per_row: Rates


@dataclass(frozen=True)
class StoreSettings:
    """What is measured.

    Attributes:
        servers: number S.
        trainers: number T.
        row_bytes: sizes of a row.
        ways: `loads`, `messages`, `one_sided`.
        rows: rows of a call.
        calls: most calls of a pass through MPI; a pass in shared memory goes over the whole table.
        table_bytes: size of the table, over all servers.
        runs: passes of each operation that count.
        poll_us: `roles.server_poll_us`.
        backend: `kernels.backend`.
    """

    servers: int
    trainers: int
    row_bytes: Sequence[int]
    ways: Sequence[str]
    rows: int
    calls: int
    table_bytes: int
    runs: int
    poll_us: int
    backend: str


class StoreRank:
    """One rank, its part of a table with rows of one size, and one way to reach them.

    Collective over: all ranks, every public method.

    Args:
        comms: this rank's communicators.
        settings: what is measured.
        row_bytes: size of a row.
        way: how rows travel.
    """

    def __init__(self, comms: Communicators, settings: StoreSettings, row_bytes: int, way: str) -> None:
        self._comms = comms
        self._settings = settings
        self._partition = RoundRobinPartition(settings.table_bytes // row_bytes, settings.servers)
        self._is_near = way == NEAR
        routes = RowRoutes.choose(comms.layout, comms.hosts, "loads" if self._is_near else "transfers")
        transfers = "messages" if self._is_near else way
        width = row_bytes // 4
        self._window = RowWindow(
            comms.world, routes, self._partition, width, _TIMEOUT_S, transfers, row_copies(settings.backend)
        )
        self._pace = MoverPace.open(settings.backend, has_core=True)
        self._records = np.ones((settings.rows, width), dtype=np.float32)
        self._plain_calls = min(settings.calls, self._partition.total_rows // settings.trainers // settings.rows)

    def measure(self) -> Passes:
        """What each operation took this rank, in every run; nothing on the oracle."""
        if self._comms.role is Role.SERVER:
            self._window.local[:] = 1.0
            self._window.synchronise()
        self._meet()
        work: dict[str, Callable[[], tuple[int, float]]] = {}
        if self._comms.role is Role.TRAINER:
            work = self._near_work() if self._is_near else self._far_work()
        names = ["take", "get", "assign", "put", "add"] if self._is_near else ["recv", "get", "send", "put", "add"]
        passes: Passes = {name: [] for name in names}
        for run in range(self._settings.runs + 1):
            for name in names if run % 2 else reversed(names):
                start_cpu_s, moved = time.process_time(), _NOTHING
                if self._comms.role is Role.SERVER and name in ("recv", "send"):
                    self._serve_plainly(name)
                if work:
                    self._comms.trainers.Barrier()
                    moved = work[name]()
                self._meet()
                if run:  # the first one brings pages and connections into being
                    passes[name].append(Pass(*moved, time.process_time() - start_cpu_s))
        return {} if self._comms.role is Role.ORACLE else passes

    def close(self) -> None:
        """Free the rows."""
        self._window.close()

    def _near_work(self) -> dict[str, Callable[[], tuple[int, float]]]:
        """Passes over all rows of this trainer, beside NumPy on the same memory and the same rows."""
        calls = self._draw_rows()
        partition, table, records = self._partition, self._window.host_rows, self._records
        first = np.cumsum([0, *(partition.rows_on(server) for server in range(partition.servers))])
        places = [first[partition.owner(rows)] + partition.offset(rows) for rows in calls]

        def assign(call: int) -> None:
            table[places[call]] = records

        return {
            "take": lambda: self._timed(lambda call: np.take(table, places[call], axis=0), len(calls)),
            "assign": lambda: self._timed(assign, len(calls)),
        } | self._row_work(calls)

    def _far_work(self) -> dict[str, Callable[[], tuple[int, float]]]:
        """A few calls, beside plain messages of the same size between this trainer and a server."""
        world, layout = self._comms.world, self._comms.layout
        server = layout.world_rank(Role.SERVER, self._comms.role_rank % layout.servers)
        calls = self._plain_calls

        def receive(_: int) -> None:
            world.Recv(self._records, server, _TAG_PLAIN)

        def send(call: int) -> None:
            world.Send(self._records, server, _TAG_PLAIN)
            if call == calls - 1:
                world.Recv(bytearray(), server, _TAG_READY)  # the server has it all

        def receive_all() -> tuple[int, float]:
            world.Send(bytearray(), server, _TAG_READY)
            return self._timed(receive, calls, math.inf)

        return {"recv": receive_all, "send": lambda: self._timed(send, calls, math.inf)} | self._row_work(
            self._draw_rows()[:calls]
        )

    def _row_work(self, calls: list[NDArray[np.int64]]) -> dict[str, Callable[[], tuple[int, float]]]:
        """The store's own operations."""
        window, records = self._window, self._records
        return {
            "get": lambda: self._get_near(calls) if self._is_near else self._get_far(calls),
            "put": lambda: self._two_at_a_time(lambda call: window.start_put(calls[call], records), len(calls)),
            "add": lambda: self._two_at_a_time(lambda call: window.start_add(calls[call], records), len(calls)),
        }

    def _get_near(self, calls: list[NDArray[np.int64]]) -> tuple[int, float]:
        """Gets into new memory, as NumPy takes rows."""
        return self._timed(lambda call: self._window.get(calls[call]), len(calls))

    def _get_far(self, calls: list[NDArray[np.int64]]) -> tuple[int, float]:
        """Gets, two of them under way, as a mover fetches."""
        into = self._records, np.empty_like(self._records)
        return self._two_at_a_time(lambda call: self._window.start_get(calls[call], into[call % 2]), len(calls))

    def _two_at_a_time(self, start: Callable[[int], PendingRows], calls: int) -> tuple[int, float]:
        """Calls of which two are under way, or as many as the way can, as a mover's are."""
        under_way: deque[PendingRows] = deque()

        def do(call: int) -> None:
            under_way.append(start(call))
            if len(under_way) >= self._window.most_at_once:
                self._complete(under_way.popleft())

        return self._timed(do, calls, finish=lambda: [*map(self._complete, under_way)])

    def _complete(self, pending: PendingRows) -> None:
        """Wait for a call as a mover with a core of its own does."""
        self._pace.begin_round()
        while not pending.advance():
            self._pace.rest(Haste.SOON, pending.awaited())

    def _draw_rows(self) -> list[NDArray[np.int64]]:
        """The rows of each call: random, all distinct, and of no other trainer."""
        order = np.random.default_rng(1).permutation(self._partition.total_rows)
        own = order[self._comms.role_rank :: self._settings.trainers]
        rows = self._settings.rows
        return list(own[: own.size // rows * rows].reshape(-1, rows))

    def _timed(
        self,
        do: Callable[[int], object],
        calls: int,
        limit_s: float = _LONGEST_PASS_S,
        finish: Callable[[], object] = lambda: None,
    ) -> tuple[int, float]:
        """Rows and seconds of up to `calls` calls and of what comes last; no new one is begun after `limit_s`."""
        start_s = time.perf_counter()
        seconds = 0.0
        done = 0
        while done < calls and seconds <= limit_s:
            do(done)
            done += 1
            seconds = time.perf_counter() - start_s
        finish()
        return done * self._settings.rows, time.perf_counter() - start_s

    def _serve_plainly(self, name: str) -> None:
        """A server's end of the plain messages: with all its trainers at once."""
        world, layout = self._comms.world, self._comms.layout
        trainers = range(self._comms.role_rank, layout.trainers, layout.servers)
        ranks = [layout.world_rank(Role.TRAINER, trainer) for trainer in trainers]
        buffers = [np.ones_like(self._records) for _ in ranks]
        if name == "recv":
            for rank in ranks:
                world.Recv(bytearray(), rank, _TAG_READY)
        start = world.Isend if name == "recv" else world.Irecv
        for _ in range(self._plain_calls):
            requests = [start(buffer, rank, _TAG_PLAIN) for buffer, rank in zip(buffers, ranks, strict=True)]
            for request in requests:
                request.Wait()
        if name == "send":
            for rank in ranks:
                world.Send(bytearray(), rank, _TAG_READY)

    def _meet(self) -> None:
        """A barrier of all ranks, in which servers answer."""
        if self._comms.role is Role.SERVER:
            serve_until_barrier(self._comms.world, self._window.answer, Polls(self._settings.poll_us * 1e-6))
        else:
            wait_for_barrier(self._comms.world, "the other ranks of the benchmark", _TIMEOUT_S)


def main() -> None:
    """Measure everything that the settings name."""
    keep_all_freed_memory()  # as every rank of a run does
    settings = StoreSettings(**json.loads(sys.argv[1]))
    found: list[Measurement] = []
    placement = Placement.in_rank_order(RoleLayout(settings.servers, settings.trainers))
    with Communicators.create(placement) as comms:
        for row_bytes in settings.row_bytes:
            for way in settings.ways:
                rank = StoreRank(comms, settings, row_bytes, way)
                of_ranks: list[Passes] = comms.world.gather(rank.measure(), root=0) or []
                rank.close()
                found.append(
                    {
                        "row_bytes": row_bytes,
                        "way": way,
                        "rows_per_s": _each(of_ranks, _rows_per_s),
                        "cpu_us_per_row": _each(of_ranks, _cpu_us),
                    }
                )
        if comms.world.Get_rank() == 0:
            print(json.dumps(found), flush=True)


def _each(of_ranks: list[Passes], figure: Callable[[Sequence[Pass]], float]) -> Rates:
    """A figure of all ranks' passes of each operation, in every run."""
    of_all = [passes for passes in of_ranks if passes]
    names = of_all[0] if of_all else {}
    return {name: [figure(run) for run in zip(*(passes[name] for passes in of_all), strict=True)] for name in names}


def _rows_per_s(run: Sequence[Pass]) -> float:
    """The trainers' rates together."""
    return sum(one.rows / one.seconds for one in run if one.rows)


def _cpu_us(run: Sequence[Pass]) -> float:
    """Processor time of all ranks for a row, in microseconds."""
    return 1e6 * sum(one.cpu_s for one in run) / sum(one.rows for one in run)


if __name__ == "__main__":
    main()
