"""Shares of a sum: moved as they say, every number is added up by one trainer, and all end with the same total."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.plan.grid_hops import Layout
from bagpipe_hpc.plan.sum_shares import sum_shares


def moved(sent: list[NDArray[np.int64]], to: list[Layout], taken: list[NDArray[np.int64]], of: list[Layout]) -> None:
    """What `MPI_Ialltoallv` does: from each trainer's numbers to each trainer's memory."""
    for sender, numbers in enumerate(sent):
        for receiver, memory in enumerate(taken):
            count, start = to[sender].counts[receiver], to[sender].starts[receiver]
            assert count == of[receiver].counts[sender], "sent and taken in"
            place = of[receiver].starts[sender]
            memory[place : place + count] = numbers[start : start + count]


@given(rows=st.integers(0, 40), width=st.integers(1, 3), trainers=st.integers(2, 6), pieces=st.integers(1, 3))
def test_sums_that_travel_by_them(rows: int, width: int, trainers: int, pieces: int) -> None:
    gradients = [1 + 10**trainer * np.arange(rows * width) for trainer in range(trainers)]
    ranks = range(trainers)
    shares = [sum_shares(rows, width, trainers, rank, pieces) for rank in ranks]
    sums: list[list[NDArray[np.int64]]] = [[] for _ in ranks]
    for piece in range(pieces):
        own = [share.pieces[piece] for share in shares]
        taken = [np.full(sum(part.taken.counts), -1) for part in own]
        moved(gradients, [part.sent for part in own], taken, [part.taken for part in own])
        for rank, part in enumerate(own):
            of_trainers = taken[rank].reshape(trainers, -1)
            assert of_trainers.shape[1] == (part.rows.stop - part.rows.start) * width
            sums[rank].append(of_trainers.sum(0))
    total = sum(gradients)
    summed = [np.concatenate(parts) for parts in sums]
    found = [np.full(rows * width, -1) for _ in ranks]
    moved(summed, [share.sums_sent for share in shares], found, [share.sums_taken for share in shares])
    for rank, share in enumerate(shares):
        found[rank][share.own] = summed[rank]
        np.testing.assert_array_equal(found[rank], total)
