"""Rows between trainers: gradients on their way home, and copies on their way to those who read them.

Plans say how many rows go from whom to whom, so nothing is asked and nothing is announced. Directly, a trainer sends
and takes in all rows of one kind by one call, `MPI_Ialltoallv`, which costs about half of what messages one by one do.
Over a grid of trainers, rows travel in two hops (`plan/exchange_grid.py`): first within the sender's row, by one such
call, where a message holds all that is for the trainers of one column, then within that column, by messages, where one
holds what all of a row send to one trainer. Both ways rows arrive in the order of their senders.

Each kind has communicators of its own, and one thread of a trainer exchanges it. MPI matches the collective calls on a
communicator by their order (MPI 4.1, section 6.12). So all trainers must exchange a kind for the same batches and
groups in the same order, also where one of them has nothing to send. They do (`step/sharing/home_rows.py` says why),
and a trainer begins second hops in the order of the first.

Why nobody waits for ever: a trainer starts to send and to take in at the same moment, and waits for nothing in between.
Passing rows on over a grid needs no more than that, and any thread that comes by does it: the one that waits for rows
itself, and the mover in each of its rounds.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.rows.column_messages import ColumnMessages, messages_by_address
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.rows.hop import Hop
from bagpipe_hpc.mpi.rows.relay import Relay
from bagpipe_hpc.plan.exchange import Flow, Kind
from bagpipe_hpc.plan.grid_hops import GridHops, Layout, MessagesByAddress

_LastHop = Hop | ColumnMessages


class Arrival:
    """Rows that are on their way to this trainer; any thread may move them on.

    Args:
        rows: where they arrive, one sender's behind the other's.
        last_hop: the hop behind which they are here, as soon as it has begun.
        pass_on: moves what is on its first hop on.

    Attributes:
        rows: as given.
    """

    def __init__(
        self, rows: NDArray[Any], last_hop: Callable[[], _LastHop | None], pass_on: Callable[[], None] | None = None
    ) -> None:
        self.rows = rows
        self._last_hop: Callable[[], _LastHop | None] | None = last_hop
        self._pass_on = pass_on
        self._testing = threading.Lock()

    def is_complete(self) -> bool:
        """Whether all have come, and all that this trainer sends have left; asked several times, but never waited for.

        Until then it passes on what has come for others, of any kind: these rows may wait for a trainer that waits for
        them.
        """
        if self._last_hop is None:
            return True
        if self._pass_on is not None:
            self._pass_on()
        if not self._testing.acquire(blocking=False):
            return False
        try:
            if self._last_hop is not None and (hop := self._last_hop()) is not None and hop.is_over():
                self._last_hop = None  # and what the hops keep
            return self._last_hop is None
        finally:
            self._testing.release()

    def awaited(self) -> Awaited | None:
        """What they are here behind; None where their last hop has not begun. For the mover."""
        last_hop = self._last_hop
        if last_hop is None:
            return ()
        hop = last_hop()
        return hop.awaited() if hop else None


def awaited_together(arrivals: Iterable[Arrival]) -> list[Awaited]:
    """What all of some arrivals are here behind, if that has begun; for the mover."""
    requests: list[MPI.Request] = []
    for arrival in arrivals:
        own = arrival.awaited()
        if own is None:
            return []
        requests += own
    return [requests] if requests else []


class RowExchange:
    """Exchanges rows with other trainers; two threads may use it, each beginning exchanges of kinds of its own.

    Args:
        comms: for this alone: those of each kind.
        hops: lays the first hop over a grid out, and passes rows on.
        by_address: how native code begins messages on the communicator of a column; None where it does not.
    """

    def __init__(
        self,
        comms: Sequence[GridComms],
        hops: GridHops,
        by_address: Callable[[MPI.Comm], MessagesByAddress | None] = messages_by_address,
    ) -> None:
        self._hops = hops
        self._comms = dict(zip(Kind, comms, strict=True))
        self._grid = comms[0].grid
        columns = {} if self._grid.is_direct else {kind: own.column for kind, own in self._comms.items()}
        self._by_address = {kind: by_address(column) for kind, column in columns.items()}
        row, column = comms[0].place
        self._own = row * self._grid.columns + column
        self._passing = threading.Lock()
        self._spent = SpentRequests()
        self._relays: dict[Kind, deque[Relay]] = {kind: deque() for kind in Kind}

    @property
    def trainer(self) -> int:
        """Number of this trainer."""
        return self._own

    def exchange(self, kind: Kind, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> Arrival:
        """Start to send rows, and to take in what the other trainers send. Collective over: the trainers.

        Args:
            kind: what they are.
            rows: `[N, W]`, left alone until they have gone: for other trainers by the grid's `sending_places`.
            flow: how many each of them gets, how many are of each trainer, and how many go on to others.
            into: takes rows in, `[M, W]`: those of the first trainer first; the place of this one's own is left as it
                is.

        Raises:
            ValueError: the plan is for another grid of trainers, or its numbers of rows contradict each other.
        """
        if flow.grid != self._grid:
            raise ValueError(f"a plan for trainers in a grid of {flow.grid}: they are in one of {self._grid}")
        if self._grid.is_direct:
            return self._exchange_directly(kind, rows, flow, into)
        relay = self._begin(kind, rows, flow, into)
        self._relays[kind].append(relay)
        return Arrival(into, lambda: relay.second, self.pass_on)

    def _exchange_directly(self, kind: Kind, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> Arrival:
        to, source = (Layout.of(counts, rows.shape[1], stays=self._own) for counts in (flow.to, flow.source))
        hop = Hop(self._comms[kind].row, rows, to, into, source, self._spent)
        return Arrival(into, lambda: hop)

    def _begin(self, kind: Kind, rows: NDArray[Any], flow: Flow, into: NDArray[Any]) -> Relay:
        """Start the first hop."""
        return Relay(self._comms[kind], self._by_address[kind], rows, flow, into, self._hops, self._spent)

    def pass_on(self) -> None:
        """Begin second hops, of each kind in order. Never waits, for threads neither."""
        if not self._passing.acquire(blocking=False):
            return
        try:
            for relays in self._relays.values():
                while relays and relays[0].begin_second():
                    relays.popleft()
        finally:
            self._passing.release()

    def awaited(self) -> list[Awaited]:
        """What second hops begin behind; for the mover, until it frees what is spent."""
        return [group for relays in self._relays.values() for relay in list(relays)[:1] for group in relay.awaited()]

    def free_spent(self) -> None:
        """Free requests that are complete: the mover alone, which watches them."""
        self._spent.free()
