"""Dense gradients hold their sum over the trainers after `wait`, whatever sums them; Horovod runs on these alone."""

import time
from collections.abc import Iterator

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from mpi4py import MPI
from torch import nn

from bagpipe_hpc.config.doors import DENSE_SUMS
from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.models.sums.contract import DenseSums, open_dense_sums
from bagpipe_hpc.models.sums.mpi_sums import GridSums, MpiSums
from bagpipe_hpc.models.sums.reduction import DenseReducer
from bagpipe_hpc.mpi.waiting import Waits, wait_for_barrier, wait_until

TIMEOUT_S = 30.0
SHAPES = [(300, 7), (300,), (1,), (2, 3, 4)]
STEPS = 5
IN_PLACE = Cpu()


class LateCopies(Cpu):
    """A device whose copies are made when they are waited for: gradients that are summed before are wrong.

    As long as tensors live in main memory, its name says that they do not.
    """

    torch_device = torch.device("meta")

    def start_to_host(self, values, into):
        return values, into

    def wait(self, mark) -> None:
        time.sleep(0.005)
        values, into = mark
        into.copy_(values)


staging = pytest.mark.parametrize("device", [IN_PLACE, LateCopies()], ids=["in place", "staged"])


@pytest.fixture(scope="module")
def trainers() -> Iterator[MPI.Comm]:
    """All ranks but the first; null on that one."""
    world = MPI.COMM_WORLD
    comm = world.Split(MPI.UNDEFINED if world.Get_rank() == 0 else 0, world.Get_rank())
    yield comm
    if comm != MPI.COMM_NULL:
        comm.Free()


@pytest.fixture(scope="module", params=[False, True], ids=["any order", "deterministic"])
def deterministic(request) -> bool:
    return request.param


@pytest.fixture(scope="module", params=DENSE_SUMS.entries)
def sums(trainers: MPI.Comm, deterministic: bool, request) -> Iterator[DenseSums | None]:
    """Each of them on the trainers; nothing on the first rank."""
    if trainers == MPI.COMM_NULL:
        yield None
        return
    own = trainers.Dup()
    opened = open_dense_sums(request.param, own, deterministic=deterministic)
    yield opened
    opened.close()
    own.Free()


def gradients(trainer: int, step: int) -> list[np.ndarray]:
    """A trainer's gradients, over eight orders of magnitude: any other order of a sum shows."""
    rng = np.random.default_rng([trainer, step])
    return [(rng.standard_normal(shape) * 10.0 ** rng.uniform(-4, 4, shape)).astype(np.float32) for shape in SHAPES]


def left_to_right(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0]
    for part in parts[1:]:
        total = (total + part).astype(np.float32)
    return total


def nothing_to_watch() -> None:
    pass


class Model:
    """Parameters in two groups, whose gradients can be chosen."""

    def __init__(self, sums: DenseSums, device: Cpu = IN_PLACE, timeout_s: float = TIMEOUT_S, watch=nothing_to_watch):
        self.parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        groups = [self.parameters[2:], self.parameters[:2]]
        self.reducer = DenseReducer(groups, sums, waits=Waits(timeout_s, watch), device=device, ring=nothing_to_watch)

    def backward(self, chosen: list[np.ndarray], *, turned_round: bool = False) -> None:
        """A backward pass whose gradients are `chosen`, which finishes one parameter after the other."""
        for parameter in self.parameters:
            parameter.grad = None
        pairs = list(zip(self.parameters, chosen, strict=True))
        for parameter, gradient in reversed(pairs) if turned_round else pairs:
            (parameter * torch.from_numpy(gradient)).sum().backward()

    @property
    def gradients(self) -> list[np.ndarray]:
        return [parameter.grad.numpy() for parameter in self.parameters]


def train(
    trainers: MPI.Comm, sums: DenseSums, device: Cpu
) -> Iterator[tuple[list[np.ndarray], list[list[np.ndarray]]]]:
    """Some steps: what the gradients are after `wait`, and those of all trainers before, parameter by parameter."""
    model = Model(sums, device)
    for step in range(STEPS):
        everyone = [gradients(trainer, step) for trainer in range(trainers.Get_size())]
        model.backward(everyone[trainers.Get_rank()])
        model.reducer.wait()
        yield model.gradients, [list(parts) for parts in zip(*everyone, strict=True)]


@pytest.mark.mpi(min_size=2)
def test_one_trainer_keeps_its_gradients_and_does_without_horovod(sums):
    if sums is None:
        return
    model = Model(sums)
    model.backward(gradients(0, 0))
    model.reducer.wait()
    assert not hvd.is_initialized()
    for found, expected in zip(model.gradients, gradients(0, 0), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.mpi(min_size=3)
@staging
def test_two_trainers_sums_have_one_result(trainers, sums, device):
    if sums is not None:
        for found, everyone in train(trainers, sums, device):
            for total, parts in zip(found, everyone, strict=True):
                np.testing.assert_array_equal(total, parts[0] + parts[1])


@pytest.mark.mpi(min_size=4)
def test_three_trainers_sums_are_right(trainers, sums):
    if sums is not None:
        for found, everyone in train(trainers, sums, IN_PLACE):
            for total, parts in zip(found, everyone, strict=True):
                error = np.abs(total - np.sum(parts, axis=0, dtype=np.float64))
                assert (error <= 1e-6 * np.abs(parts).sum(0)).all()


def has_an_order(sums: DenseSums, *, deterministic: bool) -> bool:
    """Whether the sums are promised to be in rank order."""
    return deterministic or type(sums) is MpiSums


@pytest.mark.mpi(min_size=4)
@staging
def test_three_trainers_sums_in_rank_order(trainers, sums, deterministic, device):
    if sums is not None and has_an_order(sums, deterministic=deterministic):
        for found, everyone in train(trainers, sums, device):
            for total, parts in zip(found, everyone, strict=True):
                np.testing.assert_array_equal(total, left_to_right(parts))


@pytest.mark.mpi(min_size=5)
@staging
def test_four_trainers_sums_in_rank_order(trainers, sums, deterministic, device):
    """Three trainers have a single third part; with four, another order of those from the third on shows as well."""
    if sums is not None and has_an_order(sums, deterministic=deterministic):
        for found, everyone in train(trainers, sums, device):
            for total, parts in zip(found, everyone, strict=True):
                np.testing.assert_array_equal(total, left_to_right(parts))
            total, parts = found[0], everyone[0]
            assert (total != left_to_right([parts[trainer] for trainer in (0, 1, 3, 2)])).any()


@pytest.mark.mpi(min_size=5)
def test_four_trainers_sums_over_a_grid_are_added_within_its_rows_first(trainers, sums, deterministic):
    """So that every run has the same bits; they are not those of rank order."""
    if isinstance(sums, GridSums) and not deterministic:
        for found, everyone in train(trainers, sums, IN_PLACE):
            for total, parts in zip(found, everyone, strict=True):
                np.testing.assert_array_equal(total, (parts[0] + parts[1]) + (parts[2] + parts[3]))
            assert (found[0] != left_to_right(everyone[0])).any()


@pytest.mark.mpi(min_size=5)
def test_sums_by_messages_of_different_groups_do_not_meet(trainers, sums):
    """Each has communicators of its own: they may even begin in different orders."""
    if not isinstance(sums, MpiSums):
        return
    rank, order = trainers.Get_rank(), (0, 1, 2) if trainers.Get_rank() % 2 else (2, 0, 1)
    numbers = {group: torch.arange(5.0 + group) * (rank + 1) for group in order}
    pending = {group: sums.start(group, numbers[group]) for group in order}
    for group in order[::-1]:
        wait_until(pending[group].is_complete, f"group {group}", TIMEOUT_S, sums.advance)
        assert torch.equal(numbers[group], torch.arange(5.0 + group) * 10)


@pytest.mark.mpi(min_size=4)
def test_groups_start_in_their_order_whatever_the_backward_pass_does(trainers, sums):
    """A loop of a user's own may finish them in another order on some trainers; sums of other groups would meet."""
    if sums is None:
        return
    model = Model(sums)
    for step in range(STEPS):
        everyone = [gradients(trainer, step) for trainer in range(trainers.Get_size())]
        model.backward(everyone[trainers.Get_rank()], turned_round=trainers.Get_rank() % 2 == step % 2)
        model.reducer.wait()
        for total, *parts in zip(model.gradients, *everyone, strict=True):
            error = np.abs(total - np.sum(parts, axis=0, dtype=np.float64))
            assert (error <= 1e-6 * np.abs(parts).sum(0)).all()


@pytest.mark.mpi(min_size=4)
def test_a_missing_trainer_is_noticed_and_may_come_late(trainers, sums):
    """The reduction starts with the backward pass: the trainer that is late only in `wait` holds nobody up.

    What goes on meanwhile is moved on by its mover.
    """
    if sums is None:
        return
    model = Model(sums, timeout_s=0.2)
    ones = [np.ones(shape, np.float32) for shape in SHAPES]
    if trainers.Get_rank() > 0:
        model.backward(ones)
        with pytest.raises(WaitTimeoutError, match=r"waited \S+ s for the dense gradients of the other trainers"):
            model.reducer.wait()
    wait_for_barrier(trainers, "the timeouts", TIMEOUT_S)
    model.reducer._waits = Waits(TIMEOUT_S)
    others = "the others to have their sums"
    if trainers.Get_rank() == 0:
        model.backward(ones)
        wait_for_barrier(trainers, others, TIMEOUT_S, watch=model.reducer.advance)
        model.reducer.wait()
    else:
        model.reducer.wait()
        wait_for_barrier(trainers, others, TIMEOUT_S)
    assert all((total == 3).all() for total in model.gradients)


@pytest.mark.mpi(min_size=3)
def test_a_watch_ends_a_pointless_wait(trainers, sums):
    if sums is None:
        return
    watched = []

    def give_up() -> None:
        watched.append(None)
        if len(watched) == 1:
            raise InterruptedError

    model = Model(sums, watch=give_up)
    ones = [np.ones(shape, np.float32) for shape in SHAPES]
    if trainers.Get_rank() == 1:
        model.backward(ones)
        with pytest.raises(InterruptedError):
            model.reducer.wait()
    wait_for_barrier(trainers, "the watch to give up", TIMEOUT_S)
    if trainers.Get_rank() == 0:
        watched.append(None)
        model.backward(ones)
    model.reducer.wait()
    assert all((total == 2).all() for total in model.gradients)
