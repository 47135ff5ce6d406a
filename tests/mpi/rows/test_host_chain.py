"""Sums over hosts have the bits of trainer after trainer, however many are under way."""

from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.host_chain import ChainedSum, HostChain
from bagpipe_hpc.mpi.waiting import wait_until

SHAPES = [(3, 2), (1, 4), (70_000, 3), (5, 1)]
"""Of sums that are started one after the other; the third does not fit into a message that is sent at once."""

Add = Callable[[np.ndarray | None], np.ndarray]


def gradients_of(trainer: int, number: int) -> np.ndarray:
    rng = np.random.default_rng([trainer, number])
    shape = SHAPES[number % len(SHAPES)]
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)).astype(np.float32)


def one_by_one(trainers: range, number: int, earlier: np.ndarray | None = None) -> np.ndarray:
    total = np.zeros(SHAPES[number % len(SHAPES)], np.float32) if earlier is None else earlier.copy()
    for trainer in trainers:
        total += gradients_of(trainer, number)
    return total


def on_host(comm: MPI.Comm, of_host: int) -> range:
    first = comm.Get_rank() // of_host * of_host
    return range(first, first + of_host)


def sums_of(comm: MPI.Comm, of_host: int, add: Callable[[range, int], Add]) -> dict[int, np.ndarray]:
    """Several sums of either kind, started in another order on odd trainers, and moved on backwards."""
    chains = HostChain(comm, 0), HostChain(comm, 1)
    own = on_host(comm, of_host)
    numbers = [0, 1, 2, 3, 4, 5, 6, 7]
    if own[0] // of_host % 2:
        numbers = numbers[4:] + numbers[:4]  # one kind before the other
    found: dict[int, ChainedSum] = {}
    for number in numbers:
        shape = SHAPES[number % len(SHAPES)]
        found[number] = chains[number // 4].start(of_host, shape, add(own, number))
    waiting = list(found.values())[::-1]

    def are_complete() -> bool:
        done = [one.is_complete() for one in waiting]
        assert [len(one.awaited()) for one in waiting] == [not complete for complete in done], "one operation at a time"
        return all(done)

    wait_until(are_complete, "sums over hosts", 60.0)
    return {number: found[number].total for number in range(8)}


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("of_host", [1, 2, 4])
def test_bits_are_those_of_trainer_after_trainer(comm: MPI.Comm, of_host: int) -> None:
    found = sums_of(comm, of_host, lambda own, number: lambda earlier: one_by_one(own, number, earlier))
    for number, total in found.items():
        np.testing.assert_array_equal(total.view(np.int32), one_by_one(range(4), number).view(np.int32))


@pytest.mark.mpi(min_size=4)
def test_hosts_that_sum_first_have_other_bits(comm: MPI.Comm) -> None:
    """The mutant: what was added on a host by itself is added to what earlier hosts have."""

    def add(own: range, number: int) -> Add:
        return lambda earlier: (0 if earlier is None else earlier) + one_by_one(own, number)

    found = sums_of(comm, 2, add)
    assert any((total != one_by_one(range(4), number)).any() for number, total in found.items())
    for number, total in found.items():
        np.testing.assert_allclose(total, one_by_one(range(4), number), rtol=1e-3, atol=1e-1)
