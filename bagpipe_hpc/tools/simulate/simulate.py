"""The command: predicts the steps of each number of trainers with each window, and says in a table what it found."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sections.train import MOVER
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.planning.policy import Policy
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import Prediction, predict
from bagpipe_hpc.simulation.step_order import StepOrders
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.planned_runs import require_samples
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.simulate.compute_time import ComputeTime
from bagpipe_hpc.tools.simulate.trace import (
    Trace,
    plan_trace,
    shards_trace,
    step_orders,
    synthetic_trace,
    trace_policy,
)
from bagpipe_hpc.tools.text_table import size_text

_USUAL_ZIPF = 1.05
_HEADINGS = (
    "trainers",
    "L",
    "samples/s",
    "step ms",
    "compute",
    "reductions",
    "rows",
    "hits",
    "fetched MB",
    "written MB",
    "plan MB",
    "link ms",
    "cache rows",
    "cache",
)


@dataclass(frozen=True)
class SimulationRequest:
    """What the command line asks for, in its units.

    Attributes:
        config: file of settings.
        overrides: settings that replace some of the file's.
        rows: of all tables whose ids are drawn; None: the ids are those of `data.path`.
        zipf: skew of the drawn ids; None for the usual one.
        compute: how long a model computes.
        trainers: their numbers.
        lookahead: lengths of windows, in batches; None: one batch, and the setting.
        trainers_per_host: trainers that share a host.
        server_hosts: hosts that hold servers; 0: all ranks on one host.
        gbit_per_s: of a host's link.
        latency_us: of a link, one way.
        oracle_us_per_sample: the oracle's time to read and plan a sample.
        message_us: a trainer's time to exchange rows with one other.
        moments: parts of a step's compute; None: by the weights.
        batches: to average over; None for the usual number.
    """

    config: Path
    overrides: Sequence[str]
    rows: int | None
    zipf: float | None
    compute: ComputeTime
    trainers: Sequence[int]
    lookahead: Sequence[int] | None
    trainers_per_host: int
    server_hosts: int
    gbit_per_s: float
    latency_us: float
    oracle_us_per_sample: float
    message_us: float
    moments: Sequence[float] | None
    batches: int | None

    def cluster(self, config: Config) -> Cluster:
        """The cluster, with one trainer."""
        per_sample_s, per_step_s = self.compute.seconds()
        return Cluster(
            trainers=1,
            compute_s_per_sample=per_sample_s,
            compute_s_per_step=per_step_s,
            trainers_per_host=self.trainers_per_host,
            server_hosts=self.server_hosts,
            bytes_per_s=self.gbit_per_s * 1e9 / 8,
            latency_s=self.latency_us * 1e-6,
            plan_s_per_sample=self.oracle_us_per_sample * 1e-6,
            message_s=self.message_us * 1e-6,
            dense_sums=config.train.dense_sums,
            has_sums_thread=config.train.sums_thread != MOVER,
            row_sum_bytes=config.train.row_sum_bytes,
        )


@dataclass(frozen=True)
class Job:
    """What is predicted of a number of trainers with a window.

    Attributes:
        trainers: their number.
        window: the window that the policy takes.
        sharing: where rows live that several trainers use.
        dense_sums: what sums dense gradients.
        cache_rows: slots of a trainer's cache.
        fits: whether `cache.rows` allows as many.
        prediction: of its steps.
    """

    trainers: int
    window: Window
    sharing: str
    dense_sums: str
    cache_rows: int
    fits: bool
    prediction: Prediction

    def figures(self) -> dict[str, Any]:
        """For the JSON line, measures to five digits."""
        return {
            "trainers": self.trainers,
            "lookahead": self.window.lookahead,
            "group": self.window.group,
            "sharing": self.sharing,
            "dense_sums": self.dense_sums,
            "cache_rows": self.cache_rows,
            "fits": self.fits,
            **{name: float(f"{value:.5g}") for name, value in asdict(self.prediction).items()},
        }

    def row(self, record_bytes: int) -> list[str]:
        """For the table, a text for each of its headings."""
        of = self.prediction
        return [
            str(self.trainers),
            str(self.window.lookahead),
            f"{of.samples_per_s:,.0f}",
            f"{of.step_s * 1e3:.2f}",
            f"{of.compute_s / of.step_s:.1%}",
            f"{of.wait_reductions_s / of.step_s:.1%}",
            f"{of.wait_rows_s / of.step_s:.1%}",
            f"{of.hit_rate:.1%}",
            f"{of.rows_fetched * record_bytes / 1e6:.2f}",
            f"{of.rows_written_back * record_bytes / 1e6:.2f}",
            f"{of.plan_bytes / 1e6:.2f}",
            f"{of.busiest_link_s * 1e3:.2f}",
            f"{self.cache_rows:,}{'' if self.fits else ' !'}",
            size_text(self.cache_rows * record_bytes),
        ]


def simulate(request: SimulationRequest) -> Report:
    """Predict every combination of trainers and look-ahead.

    Raises:
        BagpipeError: what is asked for is impossible.
    """
    if request.zipf is not None and not request.rows:
        raise ConfigError(
            f"--zipf {request.zipf:g}: is the skew of ids that are drawn, and those of data.path are read; leave it "
            "out, or draw ids with --rows N"
        )
    config = load_config(request.config, request.overrides)
    require_samples(request.trainers, config)
    zipf = _USUAL_ZIPF if request.zipf is None else request.zipf
    trace = synthetic_trace(config, request.rows, zipf) if request.rows else shards_trace(config)
    lookaheads = request.lookahead or sorted({1, config.lookahead.batches})
    simulation = _Simulation(
        config,
        trace,
        request.cluster(config),
        step_orders(config, trace),
        request.moments,
        request.batches or trace.steady_batches(max(lookaheads)),
    )
    return simulation.report(list(simulation.jobs(request.trainers, lookaheads)))


@dataclass(frozen=True)
class _Simulation:
    """What all jobs have in common.

    Attributes:
        config: the settings.
        trace: the look-ups.
        cluster: the cluster, with one trainer.
        orders: when gradients leave within a step.
        moments: the same as measured; None for what the weights say.
        batches: number of batches to average over.
    """

    config: Config
    trace: Trace
    cluster: Cluster
    orders: StepOrders
    moments: Sequence[float] | None
    batches: int

    def jobs(self, trainers: Sequence[int], lookaheads: Sequence[int]) -> Iterator[Job]:
        """Every number of trainers with every window; once where a policy takes the same whatever is asked for."""
        done = set()
        for lookahead in lookaheads:
            asked = self.config.lookahead
            if lookahead != asked.batches:  # `lookahead.group` is that of its own window
                asked = replace(asked, batches=lookahead, group=0)
            for number in trainers:
                policy = trace_policy(self.trace, self.config, number)
                window = policy.window(Window(lookahead, asked.group_batches))
                if (number, window.lookahead) not in done:
                    done.add((number, window.lookahead))
                    yield self._job(number, policy, window)

    def _job(self, trainers: int, policy: Policy, window: Window) -> Job:
        planned = plan_trace(self.trace, policy, window, self.batches)
        cluster = replace(self.cluster, trainers=trainers)
        order = self.orders.on(cluster)
        if self.moments:
            order = order.measured(self.moments)
        cache_rows, most = planned.shared_slots + planned.private_slots, self.config.cache.rows
        return Job(
            trainers,
            window,
            sharing=policy.facts.sharing,
            dense_sums=cluster.chosen_dense_sums,
            cache_rows=cache_rows,
            fits=not most or cache_rows <= most,
            prediction=predict(planned.loads, window, cluster, RowRecord.of(self.config), order),
        )

    def report(self, jobs: Sequence[Job]) -> Report:
        """A table with a line for each job, and the figures."""
        record_bytes, total_rows = RowRecord.of(self.config).bytes, self.trace.total_rows
        batch_size, cluster = self.config.train.batch_size, self.cluster
        report = Report("simulate")
        report.figures |= {
            "total_rows": total_rows,
            "batch_size": batch_size,
            "batches": self.batches,
            "record_bytes": record_bytes,
            "dense_weights": self.orders.by_horovod.dense_weights,
            "cluster": asdict(cluster),
            "predictions": [job.figures() for job in jobs],
        }
        beside = f" and {cluster.compute_s_per_step * 1e6:,.0f} us a step" if cluster.compute_s_per_step else ""
        report.table(
            f"{total_rows:,} rows of {record_bytes} bytes, {counted(self.batches, 'batch')} of {batch_size:,}, "
            f"{cluster.compute_s_per_sample * 1e6:.2f} us of compute a sample{beside}",
            _HEADINGS,
            [job.row(record_bytes) for job in jobs],
        )
        if not all(job.fits for job in jobs):
            report.lines += [f"!: more than cache.rows = {self.config.cache.rows}: a run would cut the window", ""]
        return report
