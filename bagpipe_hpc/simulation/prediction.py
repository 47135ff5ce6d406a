"""The result of a simulated segment: means over its steady state, and the bounds that links set."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.pipeline import Pipeline
from bagpipe_hpc.simulation.step_order import StepOrder


@dataclass(frozen=True)
class Prediction:
    """Means over the steps that are a window away from the start and the end of the segment.

    Attributes:
        samples_per_s: samples of all trainers together.
        step_s: time from one step to the next.
        compute_s: `step_s` without the two waits.
        wait_rows_s: wait for the rows of a batch.
        wait_reductions_s: wait for sums of gradients.
        unique_rows: unique rows of a batch.
        hit_rate: share of them that were in a cache.
        rows_fetched: rows got from the servers, by all trainers.
        rows_written_back: rows put to the servers, by all trainers.
        rows_reduced: rows whose gradients are summed over the trainers.
        plan_bytes: bytes sent by the oracle.
        busiest_link_s: time that a step's bytes need on the host link that has most to carry, in its busier direction.
    """

    samples_per_s: float
    step_s: float
    compute_s: float
    wait_rows_s: float
    wait_reductions_s: float
    unique_rows: float
    hit_rate: float
    rows_fetched: float
    rows_written_back: float
    rows_reduced: float
    plan_bytes: float
    busiest_link_s: float


def steady(batches: int, lookahead: int) -> range:
    """Steps that count: the cache is full, and rows are still fetched for batches to come."""
    return range(lookahead, batches - lookahead + 1)


def predict(
    loads: Sequence[BatchLoad], window: Window, cluster: Cluster, record: RowRecord, order: StepOrder
) -> Prediction:
    """Simulate a segment; arguments as for `Pipeline`, with more batches than twice the window's length.

    Raises:
        ValueError: there are too few batches for a steady state.
    """
    counted = steady(len(loads) - 1, window.lookahead)
    if not counted:
        raise ValueError(f"{len(loads) - 1} batches have no steady state with a window of {window.lookahead}")
    sent = [load.with_gradients_of(cluster.row_sum_bytes) for load in loads]
    times = Pipeline(sent, window, cluster, record, order).run()
    step_s = (times[counted[-1]].end_s - times[counted[0]].start_s) / len(counted)
    wait_rows_s = _mean(times, counted, lambda step: step.wait_rows_s)
    wait_reductions_s = _mean(times, counted, lambda step: step.wait_reductions_s)

    def mean(count: Callable[[BatchLoad], float]) -> float:
        return _mean(loads, counted, count)

    unique = mean(lambda load: load.unique_rows)
    reduced = mean(_reduced) if cluster.trainers > 1 else 0.0
    fetched, written = mean(lambda load: load.fetched_by_all), mean(lambda load: load.written_by_all)
    return Prediction(
        samples_per_s=mean(lambda load: load.samples) / step_s,
        step_s=step_s,
        compute_s=step_s - wait_rows_s - wait_reductions_s,
        wait_rows_s=wait_rows_s,
        wait_reductions_s=wait_reductions_s,
        unique_rows=unique,
        hit_rate=1.0 - mean(lambda load: load.absent_rows) / unique if unique else 0.0,
        rows_fetched=fetched,
        rows_written_back=written,
        rows_reduced=reduced,
        plan_bytes=mean(lambda load: load.plan_bytes),
        busiest_link_s=_busiest_link_s(cluster, record, partial(_mean, sent, counted), order.dense_weights),
    )


def _reduced(load: BatchLoad) -> float:
    """Rows whose gradients are summed over the trainers."""
    return load.reduced_now + load.reduced_later


def _mean(items: Sequence, counted: range, value: Callable) -> float:  # type: ignore[type-arg]
    return statistics.fmean(value(items[number]) for number in counted)


def _busiest_link_s(
    cluster: Cluster, record: RowRecord, mean: Callable[[Callable[[BatchLoad], float]], float], dense_weights: int
) -> float:
    """Time that a step's bytes need on the host link that has most to carry.

    Args:
        cluster: the cluster whose links these are.
        record: what travels with a row.
        mean: gives the mean of a count over the batches, with gradients counted by the bytes that are sent.
        dense_weights: number of weights of the dense model.
    """
    if cluster.is_one_host:
        return 0.0
    weight_bytes = 4 * record.embedding_dim
    out = mean(lambda load: load.fetched_by_all) * record.bytes
    back = mean(lambda load: load.written_by_all) * record.bytes
    at_trainer = max(out / cluster.trainers + mean(lambda load: load.plan_bytes_in), back / cluster.trainers)
    if cluster.reduces_over_links:
        summed = mean(_reduced) * weight_bytes + 4 * dense_weights
        at_trainer += 2 * (cluster.trainers - 1) / cluster.trainers * summed
        at_trainer += mean(lambda load: load.rows_exchanged) * weight_bytes
    at_trainers = at_trainer * min(cluster.trainers, cluster.trainers_per_host)
    at_servers = max(out, back) / cluster.server_hosts
    return max(at_servers, at_trainers, mean(lambda load: load.plan_bytes)) / cluster.bytes_per_s
