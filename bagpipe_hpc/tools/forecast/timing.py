"""How much of a run's traffic hides behind compute, predicted from its plans as `bagpipe simulate` does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.batch_load import BatchLoad
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import Prediction, predict
from bagpipe_hpc.simulation.step_order import StepOrder

_NO_COMPUTE_S = 1e-12
"""Time of a sample for trainers that compute in no time."""


@dataclass(frozen=True)
class Timing:
    """Times of a run on a cluster in its steady state.

    Attributes:
        bytes_per_s: bandwidth of a host's link, each way.
        bare_s: time of a step if trainers compute in no time: what rows, sums, plans and latencies take by themselves,
            where some of them overlap.
        busiest_link_s: as `Prediction.busiest_link_s`.
        hiding_us: compute time of a sample, in microseconds, from which on a step can hide `bare_s`: that divided by
            the samples of a slice.
        prediction: prediction with compute time; None where that is not known.
    """

    bytes_per_s: float
    bare_s: float
    busiest_link_s: float
    hiding_us: float
    prediction: Prediction | None = None

    @property
    def hidden(self) -> float | None:
        """Share of `bare_s` for which trainers do not wait; None where compute time is not known."""
        if self.prediction is None:
            return None
        waits_s = self.prediction.wait_rows_s + self.prediction.wait_reductions_s
        return min(1.0, max(0.0, 1.0 - waits_s / self.bare_s))

    @property
    def step_s(self) -> float:
        """Time of a step; without compute where its time is not known."""
        return self.prediction.step_s if self.prediction else self.bare_s


def time_plans(
    loads: Sequence[BatchLoad], window: Window, cluster: Cluster, record: RowRecord, order: StepOrder
) -> Timing:
    """Predict the steps of plans.

    Args:
        loads: as for `predict`.
        window: the window of the plans.
        cluster: the cluster; its `compute_s_per_sample` is 0 where that is not known.
        record: what travels with a row.
        order: when gradients leave within a step.
    """
    idle = replace(cluster, compute_s_per_sample=_NO_COMPUTE_S, compute_s_per_step=0.0)
    bare = predict(loads, window, idle, record, order)
    known = cluster.compute_s_per_sample > 0
    prediction = predict(loads, window, cluster, record, order) if known else None
    slice_samples = max(load.slice_samples for load in loads)
    hiding_us = 1e6 * bare.step_s / slice_samples
    return Timing(cluster.bytes_per_s, bare.step_s, bare.busiest_link_s, hiding_us, prediction)
