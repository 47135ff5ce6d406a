"""Plans reach every trainer whole, in order, with its own part, and never run ahead of the slowest one's credits."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.mpi import plan_channel
from bagpipe_hpc.mpi.plan_channel import PlanReceiver, PlanSender, Word
from bagpipe_hpc.mpi.waiting import wait_for_all, wait_until
from bagpipe_hpc.plan.batch_plan import BatchPlan, ReceivedPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.plan_record import PlanRecord
from bagpipe_hpc.roles.request_waits import RequestWaits, open_watch

TRAINERS = 2
TIMEOUT_S = 30.0


def record(kind: type[PlanRecord], seed: list[int], longest: int) -> Any:
    """A record of random content: arrays of up to `longest` numbers, some empty, optional ones mostly left out."""
    rng = np.random.default_rng(seed)
    arrays = kind.ARRAYS | {name: dtype for name, dtype in kind.OPTIONAL.items() if rng.random() < 0.3}
    integers = {field.name for field in fields(kind)} - {*kind.ARRAYS, *kind.OPTIONAL}
    values: dict[str, Any] = {name: int(rng.integers(0, 1000)) for name in sorted(integers)}
    for name, dtype in arrays.items():
        values[name] = rng.integers(0, 2**31, rng.integers(0, longest + 1)).astype(dtype)
    return kind(**values)


def plan(number: int, longest: int = 50) -> BatchPlan:
    """Plan `number`, as every rank can make it."""
    parts = tuple(record(TrainerPlan, [number, trainer], longest) for trainer in range(TRAINERS))
    return BatchPlan(record(SharedPlan, [number, TRAINERS], longest), parts)


def assert_same(found: PlanRecord, expected: PlanRecord) -> None:
    np.testing.assert_array_equal(found.encode(), expected.encode())


def next_plan(receiver: PlanReceiver) -> ReceivedPlan:
    """The next plan, however long it takes."""
    arrived: list[ReceivedPlan] = []

    def poll() -> bool:
        polled = receiver.poll()
        arrived.extend([] if polled is None else [polled])
        return bool(arrived)

    wait_until(poll, "a plan", TIMEOUT_S)
    return arrived[0]


def nothing_to_watch() -> None:
    pass


WAITS = {"plain": lambda: wait_for_all, "native": lambda: RequestWaits(open_watch("auto")).until_complete}
waits = pytest.mark.parametrize("wait", WAITS)


@pytest.mark.mpi(min_size=3)
@waits
@pytest.mark.parametrize("plans_ahead", [1, 3, 100])
def test_every_trainer_gets_its_part_of_every_plan_in_order(comm, plans_ahead, wait):
    """Small and large plans mixed, so that later ones could overtake."""
    count = 40
    longest = [50_000 if number % 7 == 3 else 3 for number in range(count)]
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, plans_ahead, TIMEOUT_S, WAITS[wait]())
        for number in range(count):
            sender.send(plan(number, longest[number]))
        sender.finish()
        return
    receiver = PlanReceiver(comm)
    for number in range(count):
        ((shared, own),) = next_plan(receiver).groups
        expected = plan(number, longest[number])
        assert_same(shared, expected.shared)
        assert_same(own, expected.trainers[comm.Get_rank() - 1])
        receiver.give_credit()
    receiver.finish(TIMEOUT_S, nothing_to_watch)


@pytest.mark.mpi(min_size=3)
def test_plans_of_several_groups_of_tables_travel_together(comm):
    plans = [replace(plan(number, 30), others=(plan(number + 1), plan(number + 2, 0))) for number in range(12)]
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, 2, TIMEOUT_S)
        for whole in plans:
            sender.send(whole)
        sender.finish()
        return
    receiver = PlanReceiver(comm, groups=3)
    for whole in plans:
        received = next_plan(receiver)
        for (shared, own), expected in zip(received.groups, whole.groups, strict=True):
            assert_same(shared, expected.shared)
            assert_same(own, expected.trainers[comm.Get_rank() - 1])
        receiver.give_credit()
    receiver.finish(TIMEOUT_S, nothing_to_watch)


@pytest.mark.mpi(min_size=3)
@waits
def test_the_slowest_trainer_holds_the_oracle_back(comm, wait):
    """Trainer 1 finishes nothing at first: three plans are sent, the fourth waits for it and names it."""
    talk = MPI.COMM_WORLD
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, plans_ahead=3, timeout_s=0.2, wait=WAITS[wait]())
        for number in range(3):
            sender.send(plan(number))
        talk.recv(source=1)  # trainer 0 has given all its credits
        with pytest.raises(WaitTimeoutError, match="trainer 1 to finish plan 0"):
            sender.send(plan(3))
        talk.send("go on", dest=2)
        talk.recv(source=2)  # trainer 1 has finished plan 0
        sender.send(plan(3))
        with pytest.raises(WaitTimeoutError, match="trainer 1 to finish plan 1"):
            sender.send(plan(4))
        talk.send("go on", dest=2)
        talk.recv(source=2)
        sender.finish()
        return
    receiver = PlanReceiver(comm)
    early = [next_plan(receiver) for _ in range(3)]
    assert receiver.poll() is None
    if comm.Get_rank() == 1:
        for _ in early:
            receiver.give_credit()
        talk.send("three credits given", dest=0)
        next_plan(receiver)
        receiver.give_credit()
    else:
        talk.recv(source=0)
        receiver.give_credit()
        talk.send("one credit given", dest=0)
        next_plan(receiver)
        talk.recv(source=0)
        for _ in range(3):
            receiver.give_credit()
        talk.send("all credits given", dest=0)
    receiver.finish(TIMEOUT_S, nothing_to_watch)


WORDS = Word(goes_on=True, log_loss=1 / 3), Word(goes_on=False, log_loss=5e-324)


@pytest.mark.mpi(min_size=3)
def test_the_word_comes_after_all_plans(comm):
    """What was found; the first trainer says it, and credits of the others may still be under way then."""
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, plans_ahead=5, timeout_s=TIMEOUT_S)
        for number, word in enumerate(WORDS):
            sender.send(plan(number))
            assert sender.await_word() == word
        sender.finish()
        silent = PlanSender(comm, plans_ahead=5, timeout_s=0.1)
        with pytest.raises(WaitTimeoutError, match="trainer 0 to say whether training goes on"):
            silent.await_word()
        return
    receiver = PlanReceiver(comm)
    for word in WORDS:
        next_plan(receiver)
        receiver.give_credit()
        if comm.Get_rank() == 1:
            receiver.give_word(word)
    receiver.finish(TIMEOUT_S, nothing_to_watch)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("rows", [0, 1, 25])
def test_weights_of_rows_come_behind_all_plans(comm, monkeypatch, rows):
    """In pieces of two rows; the first trainer goes on when the oracle has made something of them."""
    monkeypatch.setattr(plan_channel, "_MOST_NUMBERS", 7)
    weights = np.random.default_rng(3).random((rows, 3), dtype=np.float32)
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, plans_ahead=5, timeout_s=TIMEOUT_S)
        sender.send(plan(0))
        np.testing.assert_array_equal(sender.await_weights(rows, 3), weights)
        comm.send("on the disk", dest=1, tag=99)
        sender.weights_seen()
        sender.finish()
        if rows:
            silent = PlanSender(comm, plans_ahead=5, timeout_s=0.1)
            with pytest.raises(WaitTimeoutError, match="trainer 0 to send weights of rows"):
                silent.await_weights(rows, 3)
        return
    receiver = PlanReceiver(comm)
    next_plan(receiver)
    receiver.give_credit()
    if comm.Get_rank() == 1:
        receiver.show_weights(weights, TIMEOUT_S, nothing_to_watch)
        assert comm.iprobe(source=0, tag=99)
        comm.recv(source=0, tag=99)
    receiver.finish(TIMEOUT_S, nothing_to_watch)


@pytest.mark.mpi(min_size=3)
def test_a_credit_that_comes_with_the_time_limit_counts(comm):
    if comm.Get_rank():
        receiver = PlanReceiver(comm)
        next_plan(receiver)
        receiver.give_credit()
        receiver.finish(TIMEOUT_S, nothing_to_watch)
        return

    def wait(requests: list[MPI.Request], what: str, _: float) -> None:
        wait_until(lambda: all(request.Get_status() for request in requests), what, TIMEOUT_S)
        raise WaitTimeoutError.after(0.0, what)

    sender = PlanSender(comm, 5, TIMEOUT_S, wait)
    sender.send(plan(0))
    sender.finish()


@pytest.mark.mpi(min_size=3)
def test_the_end_waits_for_all_credits(comm):
    if comm.Get_rank() == 0:
        sender = PlanSender(comm, plans_ahead=5, timeout_s=0.2)
        sender.send(plan(0))
        with pytest.raises(WaitTimeoutError, match="trainer 0 to finish plan 0"):
            sender.finish()
        comm.Barrier()
        comm.Barrier()
        sender.finish()
        return
    receiver = PlanReceiver(comm)
    next_plan(receiver)
    comm.Barrier()
    receiver.give_credit()
    receiver.finish(TIMEOUT_S, nothing_to_watch)
    comm.Barrier()
