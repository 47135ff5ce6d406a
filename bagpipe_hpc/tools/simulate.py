"""`bagpipe simulate`: predicts steps on a cluster that is not at hand, from real plans (docs/simulate.md)."""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sections.train import MOVER
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.capacity import within_memory
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.run_facts import TrainingRows
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.output_folder import CONFIG_NAME
from bagpipe_hpc.simulation.batch_load import BatchLoad, loads_of
from bagpipe_hpc.simulation.calibration import compute_s_per_sample
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.prediction import Prediction, predict
from bagpipe_hpc.simulation.step_order import StepOrders
from bagpipe_hpc.simulation.synthetic_rows import draw_batches, scaled_tables
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.asked_trainers import require_samples
from bagpipe_hpc.tools.inspection.text_table import size_text
from bagpipe_hpc.tools.report import Report
from data_prep.synthetic.criteo_clicks import KAGGLE_IDS as TABLE_ROWS

_CRITEO_INTEGERS = 13
_DEFAULT_BATCHES = 100
"""Batches to average over, if there are as many."""
_USUAL_ZIPF = 1.05
_OF_DATA = ("fae", "pinned", "slipstream")
"""Policies that depend on which rows of the data are hot, or on the names of its tables."""
_MOST_BATCHES = 1_000_000
"""Most batches to plan, which takes hours."""

Batches = Iterator[Bags]


@dataclass(frozen=True)
class Trace:
    """The look-ups that are replayed.

    Attributes:
        table_offsets: first row of each table and the number of all rows, int64 `[tables + 1]`.
        facts: what a model is told of the samples.
        feature_tables: the table of each feature.
        batches: gives the first batches of the run, as many as are asked for, in order.
        most_batches: how many there are; None where any number can be drawn.
        mean_look_ups: look-ups of a sample in each table, on average, if there are ragged features.
        training: the training rows of the shards; None where batches are drawn.
        table_names: names of the tables of the shards.
    """

    table_offsets: NDArray[np.int64]
    facts: ModelFacts
    feature_tables: tuple[int, ...]
    batches: Callable[[int], Batches]
    most_batches: int | None = None
    mean_look_ups: tuple[float, ...] = ()
    training: TrainingRows | None = None
    table_names: tuple[str, ...] = ()

    def steady_batches(self, lookahead: int) -> int:
        """How many batches to average over by default: 100, or what a shorter trace leaves, at least 1."""
        if self.most_batches is None:
            return _DEFAULT_BATCHES
        return max(1, min(_DEFAULT_BATCHES, self.most_batches - 2 * lookahead))

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return int(self.table_offsets[-1])


@dataclass(frozen=True)
class Planned:
    """A trace's plans in numbers.

    Attributes:
        loads: the load of each plan.
        shared_slots: largest number of shared slots in use at once.
        private_slots: largest number of private slots in use at once, of the trainer with the most.
    """

    loads: list[BatchLoad]
    shared_slots: int
    private_slots: int


def step_orders(config: Config, trace: Trace) -> StepOrders:
    """When gradients leave within a step, for the model that a configuration names and the samples of a trace.

    Raises:
        ConfigError: its tables have several widths.
    """
    if config.model.embedding_dim_of:
        raise ConfigError(
            f"model.embedding_dim_of = {config.model.embedding_dim_of!r}: a simulation has rows of one width; leave it "
            "out, and set model.embedding_dim to the width of most rows"
        )
    return StepOrders.of(config, trace.facts)


def shards_trace(config: Config) -> Trace:
    """The samples that a run with these settings would train on.

    Raises:
        ConfigError, DataError: as for a run.
    """
    run = prepare_run(replace(config, train=replace(config.train, resume="")))
    segment = next(segment for segment in run.schedule if segment.is_training)

    def batches(count: int) -> Batches:
        if count > segment.batches:
            raise ConfigError(
                f"the trace has {segment.batches} batches until the first checkpoint or end of an epoch; {count} are "
                "needed (--batches, and twice the look-ahead): use fewer, a smaller train.batch_size, or more clicks"
            )
        return islice(run.batches(segment), count)

    manifest = run.manifest
    return Trace(
        run.table_offsets,
        run.model_facts,
        manifest.feature_tables,
        batches,
        segment.batches,
        manifest.mean_look_ups if manifest.ragged_features else (),
        run.sample_orders.training,
        run.tables.names,
    )


def synthetic_trace(config: Config, total_rows: int, zipf: float) -> Trace:
    """Criteo Kaggle's tables, scaled to `total_rows`, with ids drawn by popularity."""
    tables = scaled_tables(TABLE_ROWS, total_rows)

    def batches(count: int) -> Batches:
        return map(Bags.one_hot, draw_batches(tables, count, config.train.batch_size, zipf, config.train.seed))

    facts = ModelFacts.one_hot(_CRITEO_INTEGERS, len(tables), config.model.embedding_dim, config.train.seed)
    return Trace(table_offsets(tables), facts, tuple(range(len(tables))), batches)


def _drawn(config: Config, arguments: argparse.Namespace) -> Trace:
    """The ids that the command line asks for."""
    return synthetic_trace(config, arguments.rows, _USUAL_ZIPF if arguments.zipf is None else arguments.zipf)


def trace_policy(trace: Trace, config: Config, trainers: int) -> Policy:
    """The configured policy, for a trace and a number of trainers.

    Raises:
        ConfigError: it depends on the rows of the data, and the trace's are drawn.
    """
    if trace.training is None and config.policy.name in _OF_DATA:
        raise ConfigError(
            f"policy.name = {config.policy.name!r}: goes by the rows of the data, and --rows draws others; leave out "
            "--rows, and set data.path"
        )
    facts = RunFacts(
        trace.table_offsets,
        trainers,
        config.train.batch_size,
        config.train.seed,
        config.kernels,
        verify=config.debug.verify_rows,
        feature_tables=trace.feature_tables,
        mean_look_ups=trace.mean_look_ups,
        sharing=config.cache.sharing,
        exchange=config.cache.exchange,
        cache_rows=config.cache.rows,
        training=trace.training,
        table_names=trace.table_names,
    )
    return build_policy(config.policy, facts)


def plan_trace(trace: Trace, policy: Policy, window: Window, steady_batches: int) -> Planned:
    """Plan enough batches for a steady state of `steady_batches` batches.

    Raises:
        ConfigError: these are more than `_MOST_BATCHES`.
        CapacityError: the planner needs more memory than this host has free.
    """
    count = steady_batches + 2 * window.lookahead
    if count > _MOST_BATCHES:
        raise ConfigError(
            f"{count} batches to plan, one by one (--batches {steady_batches}, and twice the look-ahead of "
            f"{window.lookahead}): use {_MOST_BATCHES} in all at most"
        )
    memory_bytes = free_bytes()
    smaller_state = f"{policy.smaller_state}, " if policy.smaller_state else ""
    if (least := policy.least_bytes(window, count)) > memory_bytes:
        raise CapacityError(
            f"the planner of {trace.total_rows} rows and a look-ahead of {window.lookahead} needs {least / 1e9:.1f} "
            f"GB, and this host has {memory_bytes / 1e9:.1f} GB free: use {smaller_state}fewer --rows, a shorter "
            "--lookahead or a smaller train.batch_size"
        )
    planner = policy.planner(window)
    batches = within_memory(planner, trace.batches(count), memory_bytes)
    loads = list(loads_of(plan_segment(planner, batches, policy.start_slicing())))
    size = planner.size()
    return Planned(loads, size.shared_slots, size.private_slots)


def compute_times(arguments: argparse.Namespace) -> tuple[float, float]:
    """Seconds of compute for a sample, and for a step beside its samples; both are 0 where neither is given.

    Raises:
        ConfigError: the named folder is not that of a run, or only a time of a step is given.
    """
    per_step_s = arguments.compute_us_per_step * 1e-6
    if arguments.calibrate:
        return calibrate(arguments.calibrate, per_step_s), per_step_s
    per_sample_s = (arguments.compute_us_per_sample or 0.0) * 1e-6
    if per_step_s and not per_sample_s:
        raise ConfigError(
            f"--compute-us-per-step {arguments.compute_us_per_step:g}: says nothing without the time of a sample; give "
            "--calibrate or --compute-us-per-sample as well"
        )
    return per_sample_s, per_step_s


def calibrate(run: Path, per_step_s: float = 0.0) -> float:
    """Seconds of compute for a sample, from the output folder of a measured run, less `per_step_s` for each step.

    Raises:
        ConfigError: the folder is not that of a run, or the run has recorded no step.
    """
    try:
        with (run / METRICS_NAME).open(encoding="utf-8") as lines:
            batch_size = load_config(run / CONFIG_NAME, []).train.batch_size
            return compute_s_per_sample((json.loads(line) for line in lines if line != "\n"), batch_size, per_step_s)
    except (OSError, ValueError, RecursionError) as error:
        what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(f"--calibrate {run}: {what}; name the output folder of a finished run") from None


def simulate(arguments: argparse.Namespace) -> Report:
    """Predict every combination of trainers and look-ahead; see `cli` for the arguments."""
    if arguments.zipf is not None and not arguments.rows:
        raise ConfigError(
            f"--zipf {arguments.zipf:g}: is the skew of ids that are drawn, and those of data.path are read; leave it "
            "out, or draw ids with --rows N"
        )
    config = load_config(arguments.config, arguments.overrides)
    require_samples(arguments.trainers, config)
    trace = _drawn(config, arguments) if arguments.rows else shards_trace(config)
    per_sample_s, per_step_s = compute_times(arguments)
    orders = step_orders(config, trace)
    cluster = Cluster(
        trainers=1,
        compute_s_per_sample=per_sample_s,
        compute_s_per_step=per_step_s,
        trainers_per_host=arguments.trainers_per_host,
        server_hosts=arguments.server_hosts,
        bytes_per_s=arguments.gbit_per_s * 1e9 / 8,
        latency_s=arguments.latency_us * 1e-6,
        plan_s_per_sample=arguments.oracle_us_per_sample * 1e-6,
        message_s=arguments.message_us * 1e-6,
        dense_sums=config.train.dense_sums,
        has_sums_thread=config.train.sums_thread != MOVER,
        row_sum_bytes=config.train.row_sum_bytes,
    )
    lookaheads = arguments.lookahead or sorted({1, config.lookahead.batches})
    steady_batches = arguments.batches or trace.steady_batches(max(lookaheads))
    record = RowRecord.of(config)
    report = Report("simulate")
    predictions: list[dict[str, Any]] = []
    report.figures |= {
        "total_rows": trace.total_rows,
        "batch_size": config.train.batch_size,
        "batches": steady_batches,
        "record_bytes": record.bytes,
        "dense_weights": orders.by_horovod.dense_weights,
        "cluster": asdict(cluster),
        "predictions": predictions,
    }
    rows = []
    for lookahead in lookaheads:
        asked = config.lookahead
        if lookahead != asked.batches:  # `lookahead.group` is that of its own window
            asked = replace(asked, batches=lookahead, group=0)
        wanted = Window(lookahead, asked.group_batches)
        for trainers in arguments.trainers:
            policy = trace_policy(trace, config, trainers)
            window = policy.window(wanted)
            if any(job["trainers"] == trainers and job["lookahead"] == window.lookahead for job in predictions):
                continue  # a policy that takes the same window whatever is asked for
            planned = plan_trace(trace, policy, window, steady_batches)
            of_trainers = replace(cluster, trainers=trainers)
            order = orders.on(of_trainers)
            if arguments.moments:
                order = order.measured(arguments.moments)
            prediction = predict(planned.loads, window, of_trainers, record, order)
            cache_rows = planned.shared_slots + planned.private_slots
            fits = not config.cache.rows or cache_rows <= config.cache.rows
            rows.append(_row(trainers, window.lookahead, prediction, cache_rows, record, fits=fits))
            predictions.append(
                {
                    "trainers": trainers,
                    "lookahead": window.lookahead,
                    "group": window.group,
                    "sharing": policy.facts.sharing,
                    "dense_sums": of_trainers.chosen_dense_sums,
                    "cache_rows": cache_rows,
                    "fits": fits,
                    **_rounded(prediction),
                }
            )
    beside = f" and {per_step_s * 1e6:,.0f} us a step" if per_step_s else ""
    report.table(
        f"{trace.total_rows:,} rows of {record.bytes} bytes, {counted(steady_batches, 'batch')} of "
        f"{config.train.batch_size:,}, {per_sample_s * 1e6:.2f} us of compute a sample{beside}",
        _HEADINGS,
        rows,
    )
    if not all(one["fits"] for one in predictions):
        report.lines += [f"!: more than cache.rows = {config.cache.rows}: a run would cut the window", ""]
    return report


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


def _row(
    trainers: int, lookahead: int, prediction: Prediction, cache_rows: int, record: RowRecord, *, fits: bool
) -> list[str]:
    return [
        str(trainers),
        str(lookahead),
        f"{prediction.samples_per_s:,.0f}",
        f"{prediction.step_s * 1e3:.2f}",
        f"{prediction.compute_s / prediction.step_s:.1%}",
        f"{prediction.wait_reductions_s / prediction.step_s:.1%}",
        f"{prediction.wait_rows_s / prediction.step_s:.1%}",
        f"{prediction.hit_rate:.1%}",
        f"{prediction.rows_fetched * record.bytes / 1e6:.2f}",
        f"{prediction.rows_written_back * record.bytes / 1e6:.2f}",
        f"{prediction.plan_bytes / 1e6:.2f}",
        f"{prediction.busiest_link_s * 1e3:.2f}",
        f"{cache_rows:,}{'' if fits else ' !'}",
        size_text(cache_rows * record.bytes),
    ]


def _rounded(prediction: Prediction) -> dict[str, Any]:
    """The figures to five digits."""
    return {name: float(f"{value:.5g}") for name, value in asdict(prediction).items()}
