"""The pipeline's times, worked out by hand for batches that are all alike."""

from dataclasses import replace

import pytest

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop
from bagpipe_hpc.simulation.cluster import Cluster
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


def test_a_fetch_is_of_one_batch_where_none_waits() -> None:
    """As above, whatever the group: no batch comes later for the sake of another, and all are computed 12 ms apart."""
    loads = [replace(BATCH, fetched=120) for _ in range(9)]
    steps = Pipeline([*loads, replace(BATCH, samples=0)], Window(12, 3), CLUSTER, RECORD, COMPUTE_FIRST).run()
    assert [step.wait_rows_s / MS for step in steps] == pytest.approx([14.0, *[2.0] * 8])


def test_the_oracle_is_so_many_plans_ahead_and_no_more() -> None:
    """The eighth plan takes 100 ms from the end of the first batch on, of 10 ms as those of which plans are there."""
    loads = [replace(BATCH, fetched=0, written=0) for _ in range(12)]
    slow = replace(CLUSTER, plan_s_per_sample=10 * MS)
    loads = [replace(load, samples=10 if number == 7 else 0) for number, load in enumerate(loads)]
    window = Window(3, 1)
    assert window.plans_ahead == 6
    steps = Pipeline([*loads, replace(BATCH, samples=0)], window, slow, RECORD, COMPUTE_FIRST).run()
    assert [step.wait_rows_s / MS for step in steps] == pytest.approx([*[0.0] * 7, 40.0, *[0.0] * 4])


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
    assert times(batch, Window(4, 1), CLUSTER) == StepTimes(0.0, 10.0, 0.0, 0.0), "one trainer has all gradients"


def test_later_that_takes_too_long_is_waited_for() -> None:
    """later takes 1.5 + 19.2 ms from the end of a step; the next ends with it."""
    batch = replace(BATCH, fetched=0, written=0, reduced_later=200)
    assert times(batch, Window(4, 1), replace(CLUSTER, trainers=2)) == StepTimes(0.0, 20.7, 0.0, 15.7)


def test_a_slow_oracle_holds_all_up() -> None:
    """10 samples take 20 ms to plan; a plan of 5,000 bytes takes 5 ms to send, beside the next one, of 30,000 30 ms."""
    slow = replace(CLUSTER, plan_s_per_sample=2 * MS)
    assert times(replace(BATCH, plan_bytes=5000), Window(4, 1), slow) == StepTimes(0.0, 20.0, 10.0, 0.0)
    assert times(replace(BATCH, plan_bytes=30_000), Window(4, 1), slow) == StepTimes(0.0, 30.0, 20.0, 0.0)


def test_later_gradients_leave_the_link_to_next_copies() -> None:
    """They take 2.9 ms of the link and 1.5 besides, while the next batch is computed for 5 ms."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(50, 1),), next_copies=(Hop(50, 1),))
    spread = replace(CLUSTER, trainers=2)
    alone = times(batch, Window(4, 1), spread)
    assert times(replace(batch, later_home=(Hop(30, 1),)), Window(4, 1), spread) == alone


def test_plans_share_a_trainers_link_with_rows() -> None:
    """The link carries 4,000 bytes of rows and 20,000 of a plan for each batch, which computes for 10 ms."""
    assert times(replace(BATCH, plan_bytes_in=5000), Window(4, 1), CLUSTER) == StepTimes(0.0, 10.0, 0.0, 0.0)
    assert times(replace(BATCH, plan_bytes_in=20_000), Window(4, 1), CLUSTER) == StepTimes(0.0, 24.0, 14.0, 0.0)


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
    not_all = replace(late, sums=(DenseSum(0, 0.8), DenseSum(0, 0.2), DenseSum(0, 0.1)), waits=(0.4, 0.4, 0.4))
    assert times(batch, Window(4, 1), spread, order=not_all) == StepTimes(0.0, 5.46, 0.0, 0.46)
    # To begin either takes 0.01 ms of compute, and 0.03 of the link's time.
    slow = replace(spread, message_s=0.04 * MS)
    assert times(batch, Window(4, 1), slow, order=late) == StepTimes(0.0, 5.51, 0.0, 0.51)


def test_sums_go_over_hosts_behind_gradients_that_go_home() -> None:
    """0.5 + 2.88 ms, then 0.5 + 0.96 ms there and as much back, after 5 ms of compute."""
    batch = replace(BATCH, fetched=0, written=0, now_home=(Hop(30, 1),), now_over_hosts=(Hop(10, 1), Hop(10, 1)))
    spread = replace(CLUSTER, trainers=2)
    assert times(batch, Window(4, 1), spread) == StepTimes(0.0, 11.3, 0.0, 6.3)
    no_rows = replace(batch, now_over_hosts=(Hop(10, 1), Hop(0, 1)))
    assert times(no_rows, Window(4, 1), spread) == StepTimes(0.0, 9.84, 0.0, 4.84)


def test_an_exchange_that_takes_too_long_is_waited_for() -> None:
    """later: 1.7 + 9.6 ms, then 1.7 + 4.8 ms, from the end of a step; the next ends with it.

    A message takes 0.2 ms; to put rows in order takes nothing, since they are passed on to nobody.
    """
    batch = replace(BATCH, fetched=0, written=0, later_home=(Hop(100, 1),), rest_copies=(Hop(50, 1),))
    spread = replace(CLUSTER, trainers=2, message_s=0.2 * MS, ordered_bytes_per_s=1e6)
    assert times(batch, Window(4, 1), spread) == StepTimes(0.0, 17.8, 0.0, 12.8)


def test_the_rest_of_the_copies_comes_for_the_batch_after_next() -> None:
    """Those for batch 5 leave behind batch 3, for 1.5 + 9.6 ms: batch 4 waits for them behind 10 ms of compute."""
    loads = [replace(BATCH, fetched=0, written=0) for _ in range(9)]
    loads[5] = replace(loads[5], rest_copies=(Hop(100, 1),))
    spread = replace(CLUSTER, trainers=2)
    steps = Pipeline([*loads, replace(BATCH, samples=0)], Window(4, 1), spread, RECORD, COMPUTE_FIRST).run()
    waits = [step.wait_reductions_s / MS for step in steps]
    assert waits == pytest.approx([*[0.0] * 4, 1.1, *[0.0] * 4])


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
    """Of 0.2 ms: three for now gradients, one for a single copy; the mover has those of later gradients.

    Nothing is laid out where rows travel directly, and nothing sent where there are none.
    """
    batch = replace(BATCH, samples=40, fetched=0, written=0)
    batch = replace(batch, now_home=(Hop(30, 3),), next_copies=(Hop(1, 1),), later_home=(Hop(2, 2),))
    four = replace(CLUSTER, trainers=4, message_s=0.2 * MS, hop_s=1 * MS, latency_s=0.0, bytes_per_s=1e15)
    assert times(batch, Window(4, 1), four) == StepTimes(0.0, 10.8, 0.0, 0.8)
    assert times(replace(batch, next_copies=(Hop(0, 3),)), Window(4, 1), four) == StepTimes(0.0, 10.6, 0.0, 0.6)


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
