"""Rows reach the trainers that they are for, by kind and group, in the order of the exchanges, by either way."""

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.kernels.grid_hops import grid_hops
from bagpipe_hpc.mpi.native_calls import address_of
from bagpipe_hpc.mpi.rows import column_messages
from bagpipe_hpc.mpi.rows import exchange as exchanges
from bagpipe_hpc.mpi.rows.column_messages import messages_by_address
from bagpipe_hpc.mpi.rows.exchange import Arrival, RowExchange, awaited_together
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.rows.relay import Relay
from bagpipe_hpc.mpi.waiting import wait_until
from bagpipe_hpc.plan import grid_hops as definition
from bagpipe_hpc.plan.exchange import Flow, Kind
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.plan.grid_hops import Column, GridHops, MessagesByAddress, NumpyGridHops

WIDTH = 3
ROUNDS = {Kind.NOW_GRADIENTS: [0, 1], Kind.REST_COPIES: [2, 3, 4]}
"""Numbers of rounds of each kind."""


def rows_between(sender: int, receiver: int, number: int) -> int:
    """How many a trainer sends to another in some round: none, some, or many; of its own some stay."""
    return (sender * 7 + receiver * 3 + number) % 4 * (2 if sender == receiver else 300)


def rows_of(sender: int, receiver: int, number: int) -> np.ndarray:
    rng = np.random.default_rng([sender, receiver, number])
    rows = rng.standard_normal((rows_between(sender, receiver, number), WIDTH)).astype(np.float32)
    return rows if number % 2 == 0 else rows.view(np.int32).astype(np.int16)  # as short floats travel


def flow_of(own: int, grid: Grid, number: int) -> Flow:
    """What flows through a trainer, counted trainer by trainer."""
    trainers = range(grid.trainers)

    def sent(sender: int, receiver: int) -> int:
        return 0 if sender == receiver else rows_between(sender, receiver, number)

    row, column = divmod(own, grid.columns)
    in_row = [trainer for trainer in trainers if trainer // grid.columns == row]
    in_column = [trainer for trainer in trainers if trainer % grid.columns == column]
    return Flow(
        grid,
        np.asarray([sent(own, receiver) for receiver in trainers]),
        np.asarray([rows_between(sender, own, number) for sender in trainers]),
        np.asarray([[sent(sender, receiver) for receiver in in_column] for sender in in_row]),
    )


def sent_rows(own: int, grid: Grid, number: int) -> np.ndarray:
    """What a trainer sends, column after column of the grid."""
    parts = [rows_of(own, own, number)[:0]]
    for column in range(grid.columns):
        in_column = range(column, grid.trainers, grid.columns)
        parts += [rows_of(own, receiver, number) for receiver in in_column if receiver != own]
    return np.concatenate(parts)


def wait_for(arrivals: list[Arrival]) -> None:
    """As trainers do: whoever still waits passes the rows of others on."""
    wait_until(lambda: all(arrival.is_complete() for arrival in arrivals), "rows of others", 30.0)


@contextmanager
def exchange_over(comm: MPI.Comm, grid: Grid, hops: GridHops | None = None) -> Iterator[RowExchange]:
    comms = [GridComms.split(comm, grid) for _ in Kind]
    yield exchanges.RowExchange(comms, hops or definition.NumpyGridHops())
    for of_kind in comms:
        of_kind.free()


def exchanged(comm: MPI.Comm, grid: Grid, hops: GridHops | None = None) -> dict[int, np.ndarray]:
    """What this trainer gets in each round; odd trainers take the kinds in another order than even ones."""
    own, found = comm.Get_rank(), {}
    rounds = list(ROUNDS.items())
    if own % 2:
        rounds = rounds[1:] + rounds[:1]
    with exchange_over(comm, grid, hops) as exchange:
        assert exchange.trainer == own
        for kind, numbers in rounds:
            for number in numbers:
                flow = flow_of(own, grid, number)
                rows = np.full((flow.source.sum(), WIDTH), -1, rows_of(own, own, number).dtype)
                found[number] = exchange.exchange(kind, sent_rows(own, grid, number), flow, rows)
        wait_for(list(found.values()))
    return {number: arrival.rows for number, arrival in found.items()}


def expected(own: int, grid: Grid, number: int) -> np.ndarray:
    """Those of the first trainer first, with a place for its own: so all are summed in the order of the trainers."""
    parts = [rows_of(sender, own, number) for sender in range(grid.trainers)]
    parts[own] = np.full_like(parts[own], -1)
    return np.concatenate(parts)


def check_exchange(comm: MPI.Comm, grid: Grid, hops: GridHops | None = None) -> None:
    for number, rows in exchanged(comm, grid, hops).items():
        np.testing.assert_array_equal(rows, expected(comm.Get_rank(), grid, number))


@pytest.mark.mpi(min_size=3)
def test_rows_of_several_rounds_and_kinds_do_not_meet(comm: MPI.Comm) -> None:
    check_exchange(comm, Grid.direct(3))


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_over_any_grid_rows_arrive_alike(comm: MPI.Comm, rows: int) -> None:
    check_exchange(comm, Grid(rows, 4 // rows))


@pytest.mark.mpi(min_size=4)
def test_over_a_grid_with_native_code(comm: MPI.Comm) -> None:
    check_exchange(comm, Grid(2, 2), grid_hops("auto"))


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("missing", ["MPI_Isend", "MPI_Irecv"])
def test_over_a_grid_with_native_code_where_a_function_of_mpi_is_not_found(
    comm: MPI.Comm, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_messages, "address_of", lambda name: None if name == missing else address_of(name))
    check_exchange(comm, Grid(2, 2), grid_hops("auto"))


@pytest.mark.mpi(min_size=6)
def test_what_mpi_refuses_is_raised_and_what_has_begun_does_not_begin_again(comm: MPI.Comm) -> None:
    """Natively as from Python. Of a column of three, messages to and from the second other one are refused."""
    grid, own, number = Grid(3, 2), comm.Get_rank(), 0

    def of_nobody(column: MPI.Comm) -> MessagesByAddress | None:
        found = messages_by_address(column)
        ranks = np.where(np.arange(3) == (column.Get_rank() + 2) % 3, comm.Get_size(), np.arange(3))
        return found and found._replace(ranks=ranks.astype(np.int32))

    begun: list[Relay] = []

    class Noted(RowExchange):
        def _begin(self, kind: Kind, rows: np.ndarray, flow: Flow, into: np.ndarray) -> Relay:
            begun.append(super()._begin(kind, rows, flow, into))
            return begun[-1]

    comms = [GridComms.split(comm, grid) for _ in Kind]
    exchange, flow = Noted(comms, grid_hops("auto"), of_nobody), flow_of(own, grid, number)
    into = np.empty((flow.source.sum(), WIDTH), np.float32)
    arrival = exchange.exchange(Kind.NOW_GRADIENTS, sent_rows(own, grid, number), flow, into)
    with pytest.raises(MPI.Exception, match="rank"):
        wait_for([arrival])
    (relay,) = begun
    kept = relay._begun
    exchange.pass_on()
    assert relay._begun is kept is not None
    assert relay.second is None
    comm.Barrier()
    for request in kept._left:  # what the others were to send or take in
        request.Cancel()
        request.Wait()
    comm.Barrier()
    for of_kind in comms:
        of_kind.free()


@pytest.mark.mpi(min_size=4)
def test_whoever_waits_for_one_kind_passes_on_the_others(comm: MPI.Comm) -> None:
    """Trainers 0 and 2 of a column wait for different kinds, of which 1 and 3 send each other's one late."""
    own, grid, number = comm.Get_rank(), Grid(2, 2), 0
    first, last = (Kind.NOW_GRADIENTS, Kind.REST_COPIES)[:: 1 if own < 2 else -1]
    with exchange_over(comm, grid) as exchange:

        def start(kind: Kind) -> Arrival:
            flow = flow_of(own, grid, number)
            rows = np.empty((flow.source.sum(), WIDTH), np.float32)
            return exchange.exchange(kind, sent_rows(own, grid, number), flow, rows)

        arrivals = [start(first)]
        if own % 2:
            time.sleep(0.1)  # what trainers 0 and 2 wait for themselves they have passed on by then
        arrivals.append(start(last))
        for arrival in arrivals:
            wait_for([arrival])


@pytest.mark.mpi(min_size=4)
def test_what_native_code_passes_on_is_kept_until_it_has_left(comm: MPI.Comm) -> None:
    """MPI reads it until then, and native code leaves nothing that would keep it."""
    own, grid, number, passing = comm.Get_rank(), Grid(2, 2), 2, grid_hops("auto")
    kept: list[weakref.ref[np.ndarray]] = []

    def pass_on(
        flow: Flow, place: tuple[int, int], taken: np.ndarray, passed: np.ndarray, into: np.ndarray, column: Column
    ) -> None:
        kept.append(weakref.ref(passed))
        passing.pass_on(flow, place, taken, passed, into, column)

    hops: Any = SimpleNamespace(lay_out=passing.lay_out, pass_on=pass_on)
    with exchange_over(comm, grid, hops) as exchange:
        flow = flow_of(own, grid, number)
        rows = np.empty((flow.source.sum(), WIDTH), np.float32)
        arrival = exchange.exchange(Kind.REST_COPIES, sent_rows(own, grid, number), flow, rows)

        def has_passed_on() -> bool:
            exchange.pass_on()
            return bool(kept)

        wait_until(has_passed_on, "rows to pass on", 30.0)
        assert kept[0]() is not None
        wait_for([arrival])


class HeldUp:
    """Something that the first thread to ask it is held up in.

    Args:
        ask: asks it, and says what it has come to.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self.asked = 0
        self._ask = ask
        self._is_in, self._go_on = threading.Event(), threading.Event()

    def enter(self) -> None:
        """Called by what is asked."""
        self.asked += 1
        if self.asked == 1:
            self._is_in.set()
            self._go_on.wait(10.0)

    def ask_meanwhile(self) -> tuple[object, int, object]:
        """What another thread is told, how many have come in by then, and what the first one is told."""
        told: list[object] = []
        first = threading.Thread(target=lambda: told.append(self._ask()))
        first.start()
        assert self._is_in.wait(10.0)
        meanwhile = self._ask(), self.asked
        self._go_on.set()
        first.join()
        return *meanwhile, *told


@pytest.mark.mpi(min_size=2)
def test_one_thread_at_a_time_asks_for_rows_and_no_other_waits_for_it() -> None:
    """As MPI wants it of those who test the same request."""

    def last_hop() -> Any:
        held_up.enter()
        return SimpleNamespace(is_over=lambda: True)

    arrival = Arrival(np.empty((0, WIDTH)), last_hop)
    held_up = HeldUp(arrival.is_complete)
    assert held_up.ask_meanwhile() == (False, 1, True)
    assert arrival.is_complete()
    assert held_up.asked == 1, "it is complete, and nobody asks again"


@pytest.mark.mpi(min_size=2)
def test_rows_may_be_here_while_a_thread_passes_on_those_of_others() -> None:
    def pass_on() -> None:
        held_up.enter()

    hop: Any = SimpleNamespace(is_over=lambda: True)
    arrival = Arrival(np.empty((0, WIDTH)), lambda: hop, pass_on)
    held_up = HeldUp(arrival.is_complete)
    assert held_up.ask_meanwhile() == (True, 2, True)


@pytest.mark.mpi(min_size=2)
def test_one_thread_at_a_time_passes_rows_on_and_no_other_waits_for_it(comm: MPI.Comm) -> None:
    def begin_second() -> bool:
        held_up.enter()
        return True

    with exchange_over(comm, Grid(2, 1)) as exchange:
        relays = exchange._relays[Kind.NOW_GRADIENTS]
        relays += [SimpleNamespace(begin_second=begin_second)] * 2  # type: ignore[list-item]
        held_up = HeldUp(exchange.pass_on)
        assert held_up.ask_meanwhile() == (None, 1, None)
        assert held_up.asked == 2
        assert not relays


@pytest.mark.slow
@pytest.mark.mpi(min_size=6)
@pytest.mark.parametrize("rows", [2, 3])
def test_over_a_grid_that_is_no_square(comm: MPI.Comm, rows: int) -> None:
    check_exchange(comm, Grid(rows, 6 // rows))


class LastSenderFirst(NumpyGridHops):
    """What it passes on to a trainer is not in the order of the senders."""

    def pass_on(
        self,
        flow: Flow,
        place: tuple[int, int],
        taken: np.ndarray,
        passed: np.ndarray,
        into: np.ndarray,
        column: Column,
    ) -> None:
        by_sender = np.split(taken, np.cumsum(flow.relayed.sum(1))[:-1])
        ordered = [flow.source.reshape(flow.grid)[:, ::-1].ravel(), flow.relayed[::-1]]
        last_first = flow._replace(source=ordered[0], relayed=ordered[1])
        mirrored = place[0], flow.grid.columns - 1 - place[1]
        super().pass_on(last_first, mirrored, np.concatenate(by_sender[::-1]), passed, into, column)


class SendsInRankOrder(RowExchange):
    """It sends what is for the others in the order of the trainers, as if it sent directly."""

    def _begin(self, kind: Kind, rows: np.ndarray, flow: Flow, into: np.ndarray) -> Relay:
        starts = np.cumsum(flow.to) - flow.to
        places = [np.arange(flow.to[trainer]) + starts[trainer] for trainer in np.argsort(flow.grid.sending_places)]
        mixed = np.empty_like(rows)
        mixed[np.concatenate(places)] = rows
        return super()._begin(kind, mixed, flow, into)


class SendsLastRowsFirst(RowExchange):
    """It sends directly what is for the last trainer to the first."""

    def _exchange_directly(self, kind: Kind, rows: np.ndarray, flow: Flow, into: np.ndarray) -> Arrival:
        return super()._exchange_directly(kind, rows[::-1].copy(), flow, into)


MUTANTS = {LastSenderFirst: Grid(2, 2), SendsInRankOrder: Grid(2, 2), SendsLastRowsFirst: Grid.direct(4)}
"""And the grid over which rows travel."""


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_exchange_is_noticed(comm: MPI.Comm, mutant: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some trainer, since each gets rows of others in every round."""
    base = mutant.__base__
    monkeypatch.setattr(sys.modules[base.__module__], base.__name__, mutant)
    own, grid = comm.Get_rank(), MUTANTS[mutant]
    wrong = [not np.array_equal(rows, expected(own, grid, number)) for number, rows in exchanged(comm, grid).items()]
    assert any(comm.allgather(any(wrong)))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("grid", [Grid(1, 2), Grid(2, 1)])
def test_nothing_to_send_is_complete_without_others(comm: MPI.Comm, grid: Grid) -> None:
    nothing, rows = np.zeros(2, int), np.empty((0, WIDTH), np.float32)
    flow = Flow(grid, nothing, nothing, np.zeros((grid.columns, grid.rows), int))
    with exchange_over(comm, grid) as exchange:
        wait_for([exchange.exchange(Kind.LATER_GRADIENTS, rows, flow, rows)])


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("grid", [Grid(1, 2), Grid(2, 1)])
def test_requests_are_named_until_rows_are_here_and_then_freed_by_who_watches_them(comm: MPI.Comm, grid: Grid) -> None:
    own, number = comm.Get_rank(), 2
    flow = flow_of(own, grid, number)
    into = np.empty((flow.source.sum(), WIDTH), np.float32)
    with exchange_over(comm, grid) as exchange:
        arrival = exchange.exchange(Kind.NEXT_COPIES, sent_rows(own, grid, number), flow, into)
        watched = [request for group in exchange.awaited() for request in group]
        assert (arrival.awaited() is None) == bool(watched), "over a grid the first hop comes first"
        watched += arrival.awaited() or []
        wait_for([arrival])
        assert [*exchange.awaited(), *awaited_together([arrival])] == []
        assert [bool(request) for request in watched] == [True]
        exchange.free_spent()
        assert not any(watched)


@pytest.mark.mpi(min_size=2)
def test_arrivals_are_awaited_together_once_all_have_begun() -> None:
    hop: Any = SimpleNamespace(is_over=lambda: True, awaited=lambda: ("its request",))
    begun, waiting = (Arrival(np.empty((0, WIDTH)), lambda own=own: own) for own in (hop, None))
    assert awaited_together([begun, begun]) == [["its request"] * 2]
    assert awaited_together([begun, waiting]) == []
    assert begun.is_complete()
    assert awaited_together([begun]) == []


@pytest.mark.mpi(min_size=2)
def test_a_plan_for_another_grid_is_refused(comm: MPI.Comm) -> None:
    nothing, rows = np.zeros(2, int), np.empty((0, WIDTH), np.float32)
    with exchange_over(comm, Grid(2, 1)) as exchange, pytest.raises(ValueError, match="in a grid of"):
        exchange.exchange(Kind.LATER_GRADIENTS, rows, Flow(Grid(1, 2), nothing, nothing, nothing), rows)
