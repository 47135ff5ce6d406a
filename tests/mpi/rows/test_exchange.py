"""Rows reach the trainers that they are for, by kind and group, in the order in which they were sent."""

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.exchange import Arrival, Kind, RowExchange
from bagpipe_hpc.mpi.waiting import wait_until

WIDTH = 3


def counts_of(sender: int, trainers: int, number: int) -> np.ndarray:
    """Rows that a trainer sends to each other in some round: none, some, or many."""
    counts = np.asarray([(sender * 7 + receiver * 3 + number) % 4 * 300 for receiver in range(trainers)])
    counts[sender] = 0
    return counts


def rows_of(sender: int, receiver: int, trainers: int, number: int) -> np.ndarray:
    rng = np.random.default_rng([sender, receiver, number])
    return rng.standard_normal((counts_of(sender, trainers, number)[receiver], WIDTH)).astype(np.float32)


def arrived(exchange: RowExchange, arrivals: list[Arrival]) -> None:
    wait_until(lambda: all(arrival.is_complete() for arrival in arrivals), "rows of others", 30.0)
    wait_until(lambda: exchange.has_sent_all, "own rows to go", 30.0)


@pytest.mark.mpi(min_size=3)
def test_rows_of_several_rounds_and_kinds_do_not_meet(comm: MPI.Comm) -> None:
    """Received in another order than they were sent in, but for rounds of one kind and group."""
    trainers, own = comm.Get_size(), comm.Get_rank()
    exchange = RowExchange(comm)
    rounds = {(Kind.NOW_GRADIENTS, 0): [0, 1], (Kind.REST_COPIES, 0): [2, 3], (Kind.REST_COPIES, 1): [4]}
    for (kind, group), numbers in rounds.items():
        for number in numbers:
            parts = [rows_of(own, receiver, trainers, number) for receiver in range(trainers)]
            exchange.send(kind, group, np.concatenate(parts), counts_of(own, trainers, number))
    found = {}
    for (kind, group), numbers in reversed(rounds.items()):
        for number in numbers:
            counts = np.asarray([counts_of(sender, trainers, number)[own] for sender in range(trainers)])
            found[number] = exchange.receive(kind, group, np.empty((counts.sum(), WIDTH), np.float32), counts)
    arrived(exchange, list(found.values()))
    for number, arrival in found.items():
        parts = [rows_of(sender, own, trainers, number) for sender in range(trainers)]
        np.testing.assert_array_equal(arrival.rows, np.concatenate(parts))


@pytest.mark.mpi(min_size=2)
def test_own_rows_stay_where_they_are(comm: MPI.Comm) -> None:
    """They have a place among those of the others, so that all are summed in the order of the trainers."""
    trainers, own = comm.Get_size(), comm.Get_rank()
    exchange, counts = RowExchange(comm), np.full(trainers, 5)
    of_each = np.repeat(np.arange(trainers, dtype=np.float32), 5)[:, None] * np.ones(WIDTH, np.float32)
    rows = np.full((5 * trainers, WIDTH), -1, np.float32)
    arrival = exchange.receive(Kind.NOW_GRADIENTS, 0, rows, counts)
    exchange.send(Kind.NOW_GRADIENTS, 0, np.full((5 * trainers, WIDTH), own, np.float32), counts)
    arrived(exchange, [arrival])
    of_each[5 * own : 5 * own + 5] = -1
    np.testing.assert_array_equal(rows, of_each)


@pytest.mark.mpi(min_size=2)
def test_nothing_to_send_is_complete_at_once(comm: MPI.Comm) -> None:
    exchange = RowExchange(comm)
    nothing, rows = np.zeros(comm.Get_size(), int), np.empty((0, WIDTH), np.float32)
    exchange.send(Kind.LATER_GRADIENTS, 0, rows, nothing)
    assert exchange.has_sent_all
    assert exchange.receive(Kind.LATER_GRADIENTS, 0, rows, nothing).is_complete()
    assert exchange.trainer == comm.Get_rank()
