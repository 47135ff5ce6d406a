"""The look-ups that a simulation replays: of a run's samples, or drawn. What they decide: policy, plans, model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.capacity import within_memory
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.run_facts import TrainingRows
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.simulation.batch_load import BatchLoad, loads_of
from bagpipe_hpc.simulation.step_order import StepOrders
from bagpipe_hpc.simulation.synthetic_rows import draw_batches, scaled_tables
from bagpipe_hpc.tools.planned_runs import plain_run
from data_prep.synthetic.criteo_clicks import KAGGLE_IDS as TABLE_ROWS

_CRITEO_INTEGERS = 13
_DEFAULT_BATCHES = 100
"""Batches to average over, if there are as many."""
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


def shards_trace(config: Config) -> Trace:
    """The samples that a run with these settings would train on.

    Raises:
        ConfigError, DataError: as for a run.
    """
    run = plain_run(config)
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
