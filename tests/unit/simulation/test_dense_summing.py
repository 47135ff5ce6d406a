"""Times of sums of dense gradients within a step, worked out by hand for batches that are all alike."""

from dataclasses import replace
from math import prod

import pytest

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.simulation.batch_load import Hop
from bagpipe_hpc.simulation.dense_summing import hops_on
from bagpipe_hpc.simulation.pipeline import StepTimes
from bagpipe_hpc.simulation.step_order import DenseSum, StepOrder
from tests.unit.simulation.test_pipeline import BATCH, CLUSTER, MS, times


def test_dense_sums_start_when_they_are_complete() -> None:
    """1,000 weights: 1 + 2 x 0.5 + 4 ms from the middle of 5 ms of compute."""
    batch = replace(BATCH, fetched=0, written=0)
    spread = replace(CLUSTER, trainers=2)
    order = StepOrder(sums=(DenseSum(1000, 0.5),))
    assert times(batch, Window(4, 1), spread, order=order) == StepTimes(0.0, 8.5, 0.0, 3.5)


def test_dense_sums_come_one_after_the_other() -> None:
    """One that waits takes 1 + 2 ms from the end of the one before, 8.5 ms; one that does not, 1 ms more."""
    batch = replace(BATCH, fetched=0, written=0)
    spread = replace(CLUSTER, trainers=2)
    order = StepOrder(sums=(DenseSum(1000, 0.5), DenseSum(500, 0.25)))
    assert times(batch, Window(4, 1), spread, order=order) == StepTimes(0.0, 11.5, 0.0, 6.5)
    order = StepOrder(sums=(DenseSum(10, 1.0), DenseSum(500, 0.0)))
    assert times(batch, Window(4, 1), spread, order=order) == StepTimes(0.0, 9.0, 0.0, 4.0)


def test_sums_may_be_waited_for_when_the_next_step_reads_the_weights() -> None:
    """They take 0.5 + 4 ms from the end of compute, of which 1 or 2 ms pass in the next step."""
    two = replace(CLUSTER, trainers=2, dense_sums="mpi")
    order = StepOrder(sums=(DenseSum(1000, 0.0),))
    batch = replace(BATCH, fetched=0, written=0)
    for waits, end_s in (((), 9.5), ((0.2,), 8.5), ((0.4,), 7.5)):
        found = times(batch, Window(4, 1), two, order=replace(order, waits=waits))
        assert found == StepTimes(0.0, end_s, 0.0, end_s - 5.0)


def test_two_trainers_dense_sums_by_messages_are_one_hop() -> None:
    """0.5 + 4 ms, to begin which keeps compute for a quarter of 0.4 ms; the rest of that passes behind 2.5 ms of it."""
    batch = replace(BATCH, fetched=0, written=0)
    two = replace(CLUSTER, trainers=2, dense_sums="mpi", message_s=0.4 * MS)
    order = StepOrder(sums=(DenseSum(1000, 0.5),))
    assert times(batch, Window(4, 1), two, order=order) == StepTimes(0.0, 7.4, 0.0, 2.4)


def test_dense_sums_by_messages_pass_side_by_side() -> None:
    """Three trainers and 4 ms of compute: of 1,500 weights 4 ms there and 4 ms back, each 0.5 ms on its way.

    There from the beginning until 4.5 ms, when it is waited for; back until 9 ms. Of another one of no bytes that
    counts, complete at the end of compute, both hops pass beside: by Horovod it would come behind.
    """
    batch = replace(BATCH, fetched=0, written=0)
    three = replace(CLUSTER, trainers=3, dense_sums="mpi")
    order = StepOrder(sums=(DenseSum(1500, 1.0), DenseSum(0, 0.0)))
    assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, 9.0, 0.0, 5.0)


@pytest.mark.parametrize(("weights", "added_ms"), [(1 << 18, 2.0), ((1 << 18) - 1, 4.0)])
@pytest.mark.parametrize("message_ms", [0.0, 0.2])
def test_half_of_a_long_share_is_added_up_while_the_other_half_travels(
    weights: int, added_ms: float, message_ms: float
) -> None:
    """Four trainers, two levels: 0.5 + 4 ms and 0.5 + 2 ms there, and the same back; 2 ms to add up on the second.

    On the first level 4 ms: of two pieces the last alone adds to the time. Either way a first message and three others.
    """
    batch = replace(BATCH, fetched=0, written=0)
    four = replace(CLUSTER, trainers=4, dense_sums="grid", message_s=message_ms * MS)
    four = replace(four, bytes_per_s=(1 << 17) / MS, added_bytes_per_s=(1 << 18) / MS)
    found = times(batch, Window(4, 1), four, order=StepOrder(sums=(DenseSum(weights, 0.0),)))
    assert found.end_s == pytest.approx(3.0 + 4 * (0.5 + message_ms) + 2 * (4.0 + 2.0) + 2.0 + added_ms, rel=1e-4)


def test_shares_of_trainers_of_one_host_travel_in_one_piece() -> None:
    """As above, with 4 ms to add up; of four trainers of two hosts, whose links carry twice as much."""
    batch = replace(BATCH, fetched=0, written=0)
    four = replace(CLUSTER, trainers=4, trainers_per_host=2, dense_sums="grid")
    four = replace(four, bytes_per_s=(1 << 18) / MS, added_bytes_per_s=(1 << 18) / MS)
    found = times(batch, Window(4, 1), four, order=StepOrder(sums=(DenseSum(1 << 18, 0.0),)))
    assert found.end_s == pytest.approx(3.0 + 4 * 0.5 + 2 * (4.0 + 2.0) + 2.0 + 4.0, rel=1e-4)


def test_a_small_sum_waits_for_no_hop_of_an_older_one() -> None:
    """Three trainers and 4 ms of compute: it takes 0.5 + 1 + 0.5 ms, long before the next step begins with it.

    The older one takes 4 ms more, to be added up. It is complete 6 ms behind the end of the first ms of compute, where
    it is waited for in the next step, 5 ms later.
    """
    batch = replace(BATCH, fetched=0, written=0)
    three = replace(CLUSTER, trainers=3, dense_sums="mpi", bytes_per_s=1e15, added_bytes_per_s=1e6)
    order = StepOrder(sums=(DenseSum(1000, 0.75), DenseSum(0, 0.75)), waits=(0.25, 0.0))
    assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, 5.0, 0.0, 1.0)


def test_a_mover_does_one_thing_beside_the_other_half_as_fast() -> None:
    """Two sums of three trainers that begin behind compute: 0.1 ms of a hop's two messages of 0.2 ms each keeps that.

    The other 0.3 ms of both are the mover's, which has one core: from 0.1 and 0.2 ms on, so until 0.6 and 0.7 ms. The
    second one, which nobody waits for when it has come, goes on 0.5 + 1 ms later, and takes 0.4 + 0.5 ms back.
    """
    batch = replace(BATCH, fetched=0, written=0)
    three = replace(CLUSTER, trainers=3, dense_sums="mpi", message_s=0.2 * MS)
    order = StepOrder(sums=(DenseSum(0, 0.0), DenseSum(0, 0.0)))
    assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, 7.1, 0.0, 3.1)


def test_the_mover_notices_hops_of_dense_sums_behind_compute() -> None:
    """There 0.5 + 0.8 ms, and 0.2 to add 1,200 bytes up; 1 ms until the mover looks; back 0.5 + 0.8 ms: 3.8 ms in all.

    They pass behind 4 ms of compute; from the middle of it on 1.8 ms of them are waited for.
    """
    batch = replace(BATCH, fetched=0, written=0)
    three = replace(CLUSTER, trainers=3, dense_sums="mpi", added_bytes_per_s=6e6)
    for behind, waited_ms in ((1.0, 0.0), (0.5, 1.8)):
        order = StepOrder(sums=(DenseSum(300, behind),))
        assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, 4.0 + waited_ms, 0.0, waited_ms)


def test_a_thread_of_their_own_notices_hops_of_dense_sums_sooner_and_has_a_core() -> None:
    """Until it looks 0.25 ms pass, in place of 1: so the sum is late by 1.05 ms and not by 1.8.

    A mover that has 2 ms of messages of rows from 1 ms on has 0.3 ms of a sum's from 2.1 to 2.7 ms: that sum is there
    after 2.7 + 0.5 + 1 + 0.4 + 0.5 ms. A thread of its own has done them after 2.4 ms.
    """
    batch = replace(BATCH, fetched=0, written=0)
    own = {"has_sums_thread": True, "sums_notice_s": 0.25 * MS}
    three = replace(CLUSTER, trainers=3, dense_sums="mpi", added_bytes_per_s=6e6, **own)
    order = StepOrder(sums=(DenseSum(300, 0.5),))
    assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, 5.05, 0.0, 1.05)
    batch = replace(batch, later_home=(Hop(1, 10),))
    for has_thread, there_ms in ((False, 5.1), (True, 4.8)):
        three = replace(CLUSTER, trainers=3, dense_sums="mpi", message_s=0.2 * MS, bytes_per_s=1e15)
        three = replace(three, has_sums_thread=has_thread, sums_notice_s=three.notice_s)
        order = StepOrder(sums=(DenseSum(0, 0.5),))
        waited_ms = pytest.approx(there_ms - 4.0)
        assert times(batch, Window(4, 1), three, order=order) == StepTimes(0.0, pytest.approx(there_ms), 0.0, waited_ms)


@pytest.mark.parametrize(
    ("levels", "sent", "messages"),
    [
        ((2,), [1.0], [1]),
        ((3,), [2 / 3, 2 / 3], [2, 2]),
        ((4, 2), [3 / 4, 1 / 8, 1 / 8, 3 / 4], [3, 1, 1, 3]),
        ((4, 2, 2), [3 / 4, 1 / 8, 1 / 16, 1 / 16, 1 / 8, 3 / 4], [3, 1, 1, 1, 1, 3]),
    ],
)
def test_a_sum_on_several_levels_sends_no_more_bytes(
    levels: tuple[int, ...], sent: list[float], messages: list[int]
) -> None:
    """2 (T - 1) / T of them, or all once of two trainers, in as many messages as its groups have other members."""
    hops = hops_on(levels)
    assert [hop.sent for hop in hops] == pytest.approx(sent)
    assert [hop.messages for hop in hops] == messages
    shares = [1 / prod(levels[:number]) for number in range(len(levels))]
    assert [hop.added for hop in hops if hop.added] == pytest.approx(shares)
