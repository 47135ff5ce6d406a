"""The pipeline's times, worked out by hand for batches that are all alike."""

from dataclasses import replace
from math import prod

import pytest

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.dense_summing import hops_on
from bagpipe_hpc.simulation.pipeline import Pipeline, StepTimes
from bagpipe_hpc.simulation.step_order import DenseSum, StepOrder

RECORD = RowRecord(embedding_dim=24, state=(StateColumns("sum", per_weight=False),), has_version=False)
"""100 bytes, 96 of them weights."""
MS = 1e-3
CLUSTER = Cluster(
    trainers=1,
    compute_s_per_sample=1 * MS,
    bytes_per_s=1e6,
    latency_s=0.5 * MS,
    plan_s_per_sample=0.0,
    call_s=1 * MS,
    message_s=0.0,
    hop_s=0.0,
    notice_s=1 * MS,
    ordered_bytes_per_s=1e15,
    added_bytes_per_s=1e15,
)
"""1,000 bytes a millisecond; 2 ms until the first byte of a fetch or a write-back."""
BATCH = BatchLoad(
    samples=10,
    slice_samples=10,
    prefetch_after=0,
    retire_group=0,
    unique_rows=100,
    absent_rows=40,
    fetched=40,  # 4 ms
    fetched_by_all=40,
    written=30,  # 3 ms
    written_by_all=30,
    reduced_now=0,
    reduced_later=0,
    plan_bytes=0,
)

COMPUTE_FIRST, HALF = StepOrder(), StepOrder(behind_rows=0.5)


def times(
    batch: BatchLoad, window: Window, cluster: Cluster, batches: int = 40, order: StepOrder = COMPUTE_FIRST
) -> StepTimes:
    """A step in the middle of a segment of equal batches, relative to its start, in milliseconds."""
    batch = replace(batch, slice_samples=-(-batch.samples // cluster.trainers))
    numbers = range(batches)
    loads = [
        replace(
            batch,
            prefetch_after=window.group_before_prefetch(number),
            retire_group=window.group_started_by(number),
            written=batch.written * window.group,
        )
        for number in numbers
    ]
    last = window.group_that_retires(batches - 1)
    loads.append(replace(batch, samples=0, fetched=0, retire_group=last, written=1))
    steps = Pipeline(loads, window, cluster, RECORD, order).run()
    assert steps[-1].end_s > 0, "all batches are carried out"
    middle = batches // 2 - batches // 2 % window.group  # averaged over a group, since its write-backs come at once
    group = steps[middle : middle + window.group]
    count = window.group * MS
    return StepTimes(
        start_s=0.0,
        end_s=pytest.approx((group[-1].end_s - group[0].start_s) / count),
        wait_rows_s=pytest.approx(sum(step.wait_rows_s for step in group) / count, abs=1e-6),
        wait_reductions_s=pytest.approx(sum(step.wait_reductions_s for step in group) / count, abs=1e-6),
    )


def test_without_lookahead_everything_comes_one_after_the_other() -> None:
    """Write-back 2 + 3 ms, fetch 2 + 4 ms, compute 10 ms."""
    assert times(BATCH, Window(1, 1), CLUSTER) == StepTimes(0.0, 21.0, 11.0, 0.0)


def test_lookahead_hides_rows_behind_compute() -> None:
    """Fetches of 2 + 3 ms and write-backs of 2 + 1 ms fit into 10 ms of compute."""
    little = replace(BATCH, fetched=30, written=10)
    for window in (Window(3, 1), Window(4, 1), Window(12, 3)):
        assert times(little, window, CLUSTER) == StepTimes(0.0, 10.0, 0.0, 0.0)


def test_what_compute_cannot_hide_is_waited_for() -> None:
    """Fetches of 2 + 12 ms a step; write-backs of 2 + 3 ms pass beside them."""
    much = replace(BATCH, fetched=120)
    assert times(much, Window(4, 1), CLUSTER) == StepTimes(0.0, 14.0, 4.0, 0.0)


def test_one_fetch_waits_while_the_rows_of_another_travel() -> None:
    """12 ms a step, and no latency. It takes nothing of the link from the one before it: the first step waits 14 ms."""
    much, window = replace(BATCH, fetched=120), Window(12, 3)
    assert times(much, window, CLUSTER, batches=90) == StepTimes(0.0, 12.0, 2.0, 0.0)
    loads = [replace(much, retire_group=window.group_started_by(number)) for number in range(6)]
    loads.append(replace(much, samples=0, fetched=0, retire_group=window.group_that_retires(5), written=1))
    first = Pipeline(loads, window, CLUSTER, RECORD, COMPUTE_FIRST).run()[0]
    assert first.wait_rows_s == pytest.approx(14 * MS)


def test_a_group_is_put_behind_another_and_beside_its_barrier() -> None:
    """Of 3 batches: 36 ms of rows, which follow those of the group before. The barrier of two costs nothing."""
    much = replace(BATCH, written=120)
    assert times(much, Window(12, 3), CLUSTER, batches=90) == StepTimes(0.0, 12.0, 2.0, 0.0)
    two = replace(CLUSTER, trainers=2, server_hosts=2)
    assert times(much, Window(12, 3), two, batches=90) == StepTimes(0.0, 12.0, 7.0, 0.0)


def test_a_batch_waits_for_the_barrier_behind_its_rows() -> None:
    """Group by group where the window is short: the put takes 2 + 12 ms, the barrier 1.5, the fetch 2 + 4."""
    two = replace(CLUSTER, trainers=2, server_hosts=2)
    assert times(replace(BATCH, written=120), Window(1, 1), two) == StepTimes(0.0, 26.5, 21.5, 0.0)


def test_rows_of_one_host_come_from_its_memory() -> None:
    """No latency but that of the call: 1 ms each way, and no bytes that count."""
    one_host = replace(CLUSTER, server_hosts=0, memory_bytes_per_s=1e15)
    assert times(BATCH, Window(1, 1), one_host) == StepTimes(0.0, 12.0, 2.0, 0.0)


def test_trainers_of_a_host_share_its_link() -> None:
    """Two trainers compute 5 ms each; each gets half of the link: fetch 2 + 8 ms, write-back 2 + 6 ms, barrier 1 ms."""
    two = replace(CLUSTER, trainers=2, trainers_per_host=2)
    assert times(BATCH, Window(1, 1), two) == StepTimes(0.0, 24.0, 19.0, 0.0)


def test_spread_trainers_share_the_servers_link() -> None:
    """As above; the barrier crosses links, 0.5 ms more. With servers on two hosts nothing is shared."""
    spread = replace(CLUSTER, trainers=2)
    assert times(BATCH, Window(1, 1), spread) == StepTimes(0.0, 24.5, 19.5, 0.0)
    wide = replace(spread, server_hosts=2)
    assert times(BATCH, Window(1, 1), wide) == StepTimes(0.0, 17.5, 12.5, 0.0)


def test_now_is_waited_for_and_later_is_hidden() -> None:
    """Two spread trainers send 2 (2 - 1) / 2 of the sums each way: now 1.5 + 4.8 ms, after 5 ms of compute."""
    batch = replace(BATCH, fetched=0, written=0, reduced_now=50, reduced_later=20)
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread) == StepTimes(0.0, 11.3, 0.0, 6.3)


def test_later_that_takes_too_long_is_waited_for() -> None:
    """later takes 1.5 + 19.2 ms from the end of a step; the next ends with it."""
    batch = replace(BATCH, fetched=0, written=0, reduced_later=200)
    assert times(batch, Window(4, 1), replace(CLUSTER, trainers=2)) == StepTimes(0.0, 20.7, 0.0, 15.7)


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


def test_a_slow_oracle_holds_all_up() -> None:
    """10 samples take 20 ms to plan; a plan of 5,000 bytes takes 5 ms to send, beside the next one, of 30,000 30 ms."""
    slow = replace(CLUSTER, plan_s_per_sample=2 * MS)
    assert times(replace(BATCH, plan_bytes=5000), Window(4, 1), slow) == StepTimes(0.0, 20.0, 10.0, 0.0)
    assert times(replace(BATCH, plan_bytes=30_000), Window(4, 1), slow) == StepTimes(0.0, 30.0, 20.0, 0.0)


def test_four_trainers_take_two_rounds() -> None:
    """now: 1 + 2 x 0.5 ms, then 3 / 4 x 2 x 4.8 ms; slices of 10 samples are 3 at most."""
    batch = replace(BATCH, fetched=0, written=0, reduced_now=50)
    four = replace(CLUSTER, trainers=4, server_hosts=4)
    assert times(batch, Window(4, 1), four) == StepTimes(0.0, 12.2, 0.0, 9.2)


def test_gradients_go_home_and_copies_come_back_before_the_next_batch() -> None:
    """now: 0.5 + 2.88 ms, then 0.5 + 0.96 ms, after 5 ms of compute; what goes behind the next batch is hidden."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 1),), next_copies=(Hop(10, 1),))
    batch = replace(batch, later_home=(Hop(2, 1),), rest_copies=(Hop(1, 1),))
    assert times(batch, Window(4, 1), replace(CLUSTER, trainers=2)) == StepTimes(0.0, 9.84, 0.0, 4.84)


def test_gradients_go_home_before_compute_ends() -> None:
    """now: 0.5 + 2.88 ms, from half of 5 ms of compute on; then copies, 0.5 + 0.96 ms; a sum likewise, 1.5 + 1.92."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 1),), next_copies=(Hop(10, 1),))
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread, order=HALF) == StepTimes(0.0, 7.34, 0.0, 2.34)
    batch = replace(BATCH, fetched=0, written=0, reduced_now=20)
    assert times(batch, Window(4, 1), spread, order=HALF) == StepTimes(0.0, 5.92, 0.0, 0.92)


def test_to_begin_an_exchange_keeps_compute() -> None:
    """For a quarter of 0.8 ms; the rest, 0.5 and 0.96 ms go by behind 2.5 ms of compute."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(10, 1),))
    slow = replace(CLUSTER, trainers=2, message_s=0.8 * MS)
    assert times(batch, Window(4, 1), slow, order=HALF) == StepTimes(0.0, 5.2, 0.0, 0.2)


def test_the_second_hop_of_a_grid_passes_behind_compute() -> None:
    """0.15 ms to begin; behind 2.5 ms of compute 0.15 + 0.5 + 0.96, 1 until the mover looks, and 0.3 + 0.5 + 1.92."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(10, 1), Hop(20, 1)))
    slow = replace(CLUSTER, trainers=2, message_s=0.2 * MS, hop_s=0.1 * MS)
    assert times(batch, Window(4, 1), slow, order=HALF) == StepTimes(0.0, 7.98, 0.0, 2.98)


def test_rows_are_updated_between_late_gradients_of_weights() -> None:
    """Gradients take 0.5 + 0.96 ms behind 2.5 ms of compute, of which 1 is left then: copies take 0.46 ms more than it.

    Nobody looks where gradients of weights come at once: all of the copies comes behind the step.
    """
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(10, 1),), next_copies=(Hop(10, 1),))
    order = StepOrder(behind_rows=0.5, sums=(DenseSum(0, 0.2),), waits=(0.4,))
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread, order=order) == StepTimes(0.0, 6.46, 0.0, 1.46)
    late = replace(order, is_late=True)
    assert times(batch, Window(4, 1), spread, order=late) == StepTimes(0.0, 5.46, 0.0, 0.46)


def test_sums_may_be_waited_for_when_the_next_step_reads_the_weights() -> None:
    """They take 0.5 + 4 ms from the end of compute, of which 1 or 2 ms pass in the next step."""
    two = replace(CLUSTER, trainers=2, dense_sums="mpi")
    order = StepOrder(sums=(DenseSum(1000, 0.0),))
    batch = replace(BATCH, fetched=0, written=0)
    for waits, end_s in (((), 9.5), ((0.2,), 8.5), ((0.4,), 7.5)):
        found = times(batch, Window(4, 1), two, order=replace(order, waits=waits))
        assert found == StepTimes(0.0, end_s, 0.0, end_s - 5.0)


def test_an_exchange_that_takes_too_long_is_waited_for() -> None:
    """later: 1.5 + 9.6 ms, then 1.5 + 4.8 ms, from the end of a step; the next ends with it."""
    batch = replace(BATCH, fetched=0, written=0, later_home=(Hop(100, 1),), rest_copies=(Hop(50, 1),))
    assert times(batch, Window(4, 1), replace(CLUSTER, trainers=2)) == StepTimes(0.0, 17.4, 0.0, 12.4)


def test_over_a_grid_all_rows_travel_twice() -> None:
    """now: 0.5 + 2.88 ms and 0.5 + 1.92 ms, after 5 ms of compute; 0.2 ms a message, and 1.92 to put rows together.

    The second message of the first hop begins while the first one travels.
    """
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 2), Hop(20, 1)))
    slow = replace(CLUSTER, trainers=2, message_s=0.2 * MS, ordered_bytes_per_s=1e6)
    assert times(batch, Window(4, 1), slow) == StepTimes(0.0, 13.12, 0.0, 8.12)


@pytest.mark.parametrize(("ordered_bytes_per_s", "second_ms"), [(1e6, 0.48 + 0.5 + 1.92), (5e5, 3.84 + 0.5 + 0.48)])
def test_what_is_for_one_receiver_travels_while_the_next_one_s_rows_are_put_in_order(
    ordered_bytes_per_s: float, second_ms: float
) -> None:
    """A quarter of 1.92 ms, then 0.5 + 1.92 ms on the link; or all of 3.84 ms, and the last 0.48 ms on the link."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 2), Hop(20, 4)))
    slow = replace(CLUSTER, trainers=2, ordered_bytes_per_s=ordered_bytes_per_s)
    end_s = pytest.approx(5.0 + 0.5 + 2.88 + second_ms)
    assert times(batch, Window(4, 1), slow).end_s == end_s


@pytest.mark.parametrize(("message_ms", "hop_ms"), [(0.4, 0.4 + 0.5 + 2.88), (2.0, 6.0 + 0.5 + 0.96)])
def test_messages_of_a_hop_travel_while_the_next_ones_begin(message_ms: float, hop_ms: float) -> None:
    """Three: a message, then 0.5 + 2.88 ms on the link; or all of 6 ms, and the last 0.96 ms on the link."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 3),))
    slow = replace(CLUSTER, trainers=2, message_s=message_ms * MS)
    assert times(batch, Window(4, 1), slow).end_s == pytest.approx(5.0 + hop_ms)


def test_within_a_host_one_core_begins_messages_and_copies_them() -> None:
    """Three of 0.4 ms each, then 2,880 bytes in 2.88 ms."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 3),))
    host = replace(CLUSTER, trainers=2, server_hosts=0, memory_bytes_per_s=1e6, message_s=0.4 * MS)
    assert times(batch, Window(4, 1), host).end_s == pytest.approx(5.0 + 1.2 + 2.88)


def test_each_other_trainer_takes_a_message() -> None:
    """Of 0.2 ms: three for now gradients, one for a single copy; the mover has those of later gradients."""
    batch = replace(BATCH, samples=40, fetched=0, written=0)
    batch = replace(batch, now_home=(Hop(30, 3),), next_copies=(Hop(1, 1),), later_home=(Hop(2, 2),))
    four = replace(CLUSTER, trainers=4, message_s=0.2 * MS, latency_s=0.0, bytes_per_s=1e15)
    assert times(batch, Window(4, 1), four) == StepTimes(0.0, 10.8, 0.0, 0.8)


def test_copies_come_while_layers_that_need_no_rows_are_computed() -> None:
    """A fifth of 5 ms of compute passes while copies take 0.5 + 0.96 ms; without it they are waited for to the end."""
    batch = replace(BATCH, fetched=0, written=0, next_copies=(Hop(10, 1),))
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread) == StepTimes(0.0, 6.46, 0.0, 1.46)
    assert times(batch, Window(4, 1), spread, order=StepOrder(before_rows=0.2)) == StepTimes(0.0, 5.46, 0.0, 0.46)


def test_the_second_hop_of_copies_is_noticed_by_the_mover_or_by_who_waits() -> None:
    """0.5 + 0.96 ms, then 1 ms until the mover looks unless they are waited for, 0.5 + 0.96 ms."""
    batch = replace(BATCH, fetched=0, written=0, next_copies=(Hop(10, 1), Hop(10, 1)))
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread) == StepTimes(0.0, 7.92, 0.0, 2.92)
    assert times(batch, Window(4, 1), spread, order=StepOrder(before_rows=0.4)) == StepTimes(0.0, 6.92, 0.0, 1.92)


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
