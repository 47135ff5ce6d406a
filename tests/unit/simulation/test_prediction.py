"""Means of the steady state and the bound of the links, by hand; synthetic look-ups; calibration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop
from bagpipe_hpc.simulation.calibration import compute_s_per_sample
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import Prediction, predict, steady
from bagpipe_hpc.simulation.step_order import DenseSum, StepOrder
from bagpipe_hpc.simulation.synthetic_rows import draw_batches, scaled_tables
from tests.unit.simulation.test_pipeline import BATCH, CLUSTER, RECORD


def segment(batch: BatchLoad, window: Window, batches: int) -> list[BatchLoad]:
    numbers = range(batches)
    loads = [
        replace(
            batch,
            prefetch_after=window.group_before_prefetch(number),
            retire_group=window.group_started_by(number),
        )
        for number in numbers
    ]
    return [*loads, replace(batch, samples=0, retire_group=window.group_that_retires(batches - 1))]


def test_only_steady_steps_count() -> None:
    assert list(steady(10, 1)) == list(range(1, 10))
    assert list(steady(10, 4)) == [4, 5, 6]
    assert not steady(10, 6)


def test_means_of_a_segment() -> None:
    window = Window(1, 1)
    loads = segment(BATCH, window, 10)
    loads[0] = replace(loads[0], unique_rows=10**6, fetched_by_all=10**6)  # before the steady state
    assert predict(loads, window, CLUSTER, RECORD, StepOrder(sums=(DenseSum(1000, 0.5),))) == Prediction(
        samples_per_s=pytest.approx(10 / 0.021),
        step_s=pytest.approx(0.021),  # see test_without_lookahead_everything_comes_one_after_the_other
        compute_s=pytest.approx(0.010),
        wait_rows_s=pytest.approx(0.011),
        wait_reductions_s=0.0,
        unique_rows=100.0,
        hit_rate=0.6,
        rows_fetched=40.0,
        rows_written_back=30.0,
        rows_reduced=0.0,
        plan_bytes=0.0,
        busiest_link_s=pytest.approx(0.004),
    )


def test_batches_that_look_up_no_row_are_predicted() -> None:
    """As where the only look-ups are lists, all of which are empty."""
    empty = replace(BATCH, unique_rows=0, absent_rows=0)
    found = predict(segment(empty, Window(1, 1), 10), Window(1, 1), CLUSTER, RECORD, StepOrder())
    assert (found.hit_rate, found.unique_rows) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("cluster", "link_ms"),
    [
        (replace(CLUSTER, trainers=4, trainers_per_host=4), 16.0),  # 160 rows of 100 bytes on one link
        (replace(CLUSTER, trainers=4, trainers_per_host=4, server_hosts=2), 16.0),
        (replace(CLUSTER, trainers=4, trainers_per_host=2, server_hosts=1), 8.0 + 2 * 1.5 * 9.6),  # 50 rows' weights
        (replace(CLUSTER, trainers=4, server_hosts=1), 4.0 + 1.5 * 9.6),
        (replace(CLUSTER, trainers=4, server_hosts=0), 0.0),
    ],
)
def test_the_busiest_link(cluster: Cluster, link_ms: float) -> None:
    batch = replace(BATCH, fetched_by_all=160, reduced_now=60, reduced_later=40)
    loads = segment(batch, Window(1, 1), 4)
    prediction = predict(loads, Window(1, 1), cluster, RECORD, StepOrder())
    assert prediction.busiest_link_s * 1e3 == pytest.approx(link_ms)
    assert prediction.rows_reduced == 100.0


@pytest.mark.parametrize(
    ("cluster", "link_ms"),
    [
        (CLUSTER, 16.0),  # 160 rows of 100 bytes come to one server, more than the 20 that leave it
        # Of each trainer 80 rows, 1,000 dense gradients there and back, and 30 rows' weights.
        (replace(CLUSTER, trainers=2, server_hosts=2), 8.0 + 4.0 + 2.88),
    ],
)
def test_a_link_carries_most_the_way_that_more_rows_go(cluster: Cluster, link_ms: float) -> None:
    batch = replace(BATCH, fetched_by_all=20, written_by_all=160, now_home=(Hop(30, 1),))
    loads = segment(batch, Window(1, 1), 4)
    prediction = predict(loads, Window(1, 1), cluster, RECORD, StepOrder(sums=(DenseSum(1000, 0.5),)))
    assert prediction.busiest_link_s * 1e3 == pytest.approx(link_ms)


def test_one_trainer_sums_no_rows() -> None:
    loads = segment(replace(BATCH, reduced_now=60), Window(1, 1), 4)
    assert predict(loads, Window(1, 1), CLUSTER, RECORD, StepOrder()).rows_reduced == 0.0
    two = replace(CLUSTER, trainers=2)
    assert predict(loads, Window(1, 1), two, RECORD, StepOrder()).rows_reduced == 60.0


def test_gradients_of_rows_in_16_bits_take_half_the_bytes() -> None:
    """Those that are summed, and those that go home; copies do not. Rows are counted whole."""
    summed = replace(BATCH, fetched=0, written=0, fetched_by_all=0, written_by_all=0, reduced_now=30, reduced_later=40)
    home = replace(BATCH, fetched=0, written=0, fetched_by_all=0, written_by_all=0, now_home=(Hop(30, 1),))
    copies = replace(home, now_home=(), next_copies=(Hop(30, 1),), rest_copies=(Hop(40, 1),))
    cluster = replace(CLUSTER, trainers=2, server_hosts=2, latency_s=0.0, call_s=0.0, compute_s_per_sample=1e-6)
    short = replace(cluster, row_sum_bytes=2)
    later = replace(home, now_home=(), later_home=(Hop(9, 1),))
    for batch, share in ((summed, 0.5), (home, 0.5), (later, 0.5), (copies, 1)):
        loads = segment(batch, Window(1, 1), 4)
        whole, half = (predict(loads, Window(1, 1), of, RECORD, StepOrder()) for of in (cluster, short))
        assert whole.busiest_link_s > 0
        assert half.busiest_link_s == pytest.approx(share * whole.busiest_link_s)
        assert half.rows_reduced == whole.rows_reduced
        assert half.wait_reductions_s == pytest.approx(share * whole.wait_reductions_s, rel=0.05, abs=2e-3)
        assert (half.wait_reductions_s < whole.wait_reductions_s) == (share < 1)


def test_the_oracles_link_may_be_the_busiest() -> None:
    loads = segment(replace(BATCH, plan_bytes=50_000), Window(1, 1), 4)
    prediction = predict(loads, Window(1, 1), CLUSTER, RECORD, StepOrder())
    assert prediction.busiest_link_s == pytest.approx(0.050)


def test_plans_come_over_a_trainers_link_besides_rows() -> None:
    rows, both = (
        predict(
            segment(replace(BATCH, plan_bytes_in=taken), Window(1, 1), 4), Window(1, 1), CLUSTER, RECORD, StepOrder()
        )
        for taken in (0, 7000)
    )
    assert both.busiest_link_s == pytest.approx(rows.busiest_link_s + 0.007)


def test_too_short_a_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="7 batches have no steady state with a window of 4"):
        predict(segment(BATCH, Window(4, 1), 7), Window(4, 1), CLUSTER, RECORD, StepOrder())


def test_drawn_rows_lie_in_their_tables_and_popular_ones_lead() -> None:
    (batch,) = draw_batches((10, 1_000_000_000), 1, 20_000, 1.05, seed=1)
    assert batch.shape == (20_000, 2)
    assert batch[:, 0].min() == 0
    assert batch[:, 0].max() == 9
    assert batch[:, 1].min() == 10
    assert 10**8 < batch[:, 1].max() < 10 + 10**9
    shares = [float((batch[:, 1] - 10 < ids).mean()) for ids in (10, 10**4)]
    # The continuous law's share of the first k of n ids: (1 - (k + 1) ** -.05) / (1 - (n + 1) ** -.05)
    assert shares == pytest.approx([0.175, 0.572], abs=0.02)


@pytest.mark.parametrize("zipf", [0.0, 0.5, 1.0, 1.05])
def test_exponents(zipf: float) -> None:
    (batch,) = draw_batches((1000,), 1, 100_000, zipf, seed=2)
    counts = np.bincount(batch[:, 0], minlength=1000)
    assert counts[:100].sum() / counts.sum() == pytest.approx(
        {0.0: 0.1, 0.5: 0.3, 1.0: 0.67, 1.05: 0.71}[zipf], abs=0.02
    )


def test_same_seed_same_batches() -> None:
    first, second, third = (np.stack(list(draw_batches((50, 70), 3, 10, 1.05, seed))) for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != third).any()


def test_tables_are_scaled_and_small_ones_kept() -> None:
    assert scaled_tables((7, 3000, 1000, 6000), 100_007) == (7, 33_000, 1000, 66_000)
    assert sum(scaled_tables((7, 3001, 1000, 6000), 99_999)) == 99_999


@pytest.mark.parametrize("total_rows", [10, 1008, 2**53 + 1])
def test_rows_that_no_tables_can_have_are_refused(total_rows: int) -> None:
    """Two tables are kept, 1007 rows, and each of the two others has a row."""
    with pytest.raises(ConfigError, match=rf"--rows {total_rows}: use 1009 to 9007199254740992 rows; .* 1007 rows in"):
        scaled_tables((7, 3000, 1000, 6000), total_rows)
    assert scaled_tables((7, 3000, 1000, 6000), 1009) == (7, 1, 1000, 1)


def test_exponents_around_one_give_about_the_same_batches() -> None:
    """The general formula would subtract numbers that are equal to 15 digits."""
    below, one, above = (next(draw_batches((10**9,), 1, 5000, zipf, seed=1)) for zipf in (1 - 1e-15, 1.0, 1 + 1e-15))
    np.testing.assert_array_equal(below, one)
    np.testing.assert_array_equal(above, one)


def progress(*busy_ms: float) -> dict[str, Any]:
    mean = {"total_ms": sum(busy_ms) / len(busy_ms) + 3.0, "wait_rows_ms": 3.0}
    return {"event": "progress", "of_trainers": {"number": len(busy_ms), "mean": mean}}


def test_calibration_takes_the_median_record_after_the_first() -> None:
    events = [progress(900, 900), progress(10, 12), {"event": "evaluation"}, progress(50, 50), progress(11, 13)]
    assert compute_s_per_sample(events, batch_size=200) == pytest.approx(0.012 / 100)
    assert compute_s_per_sample([progress(8)], batch_size=100) == pytest.approx(80e-6)
    assert compute_s_per_sample(events, batch_size=200, per_step_s=0.004) == pytest.approx(0.008 / 100)


def test_calibration_refuses_a_step_that_leaves_its_samples_no_time() -> None:
    with pytest.raises(ValueError, match=r"its steps took 8000 us, which --compute-us-per-step leaves no sample of"):
        compute_s_per_sample([progress(8)], batch_size=100, per_step_s=0.008)


def test_calibration_needs_a_record() -> None:
    with pytest.raises(ValueError, match="no training step"):
        compute_s_per_sample([{"event": "evaluation"}], batch_size=8)


DAMAGED: list[Any] = [
    *(["x"], [[]], [None], [{}], [{"event": "progress"}], [progress(float("nan"))], [progress(-8)]),
    *([{"event": "progress", "of_trainers": told}] for told in (3, {}, {"number": 2}, {"number": 2, "mean": {}})),
    [{"event": "progress", "of_trainers": {"number": 1, "mean": {"total_ms": "1", "wait_rows_ms": 0}}}],
    [progress(8) | {"of_trainers": progress(8)["of_trainers"] | {"number": 0}}],
    [{"event": "progress", "trainers": [{"total_ms": 6.0, "wait_rows_ms": 1.0}]}],
]


@pytest.mark.parametrize("events", DAMAGED)
def test_calibration_refuses_damaged_records(events: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"records of training steps are damaged|a step took (nan|-0.008) s"):
        compute_s_per_sample(events, batch_size=100)
