"""What all ranks know of a run before it starts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.values import chosen_names
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.kernels import look_ups, lzf
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.group_look_ups import group_look_ups
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.lane_order import LaneOrder
from bagpipe_hpc.plan.neighbours import Graph, NeighbourDraws
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.plan.section_order import SectionOrder
from bagpipe_hpc.plan.slices import dealt_whole
from bagpipe_hpc.planning.groups import RunPolicy
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.groups import table_groups
from bagpipe_hpc.rows.partition import RowPartition, Tables, table_offsets
from bagpipe_hpc.rows.placement import place_groups
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.features import feature_facts, read_limits, table_widths
from bagpipe_hpc.run.row_group import RowGroup
from bagpipe_hpc.run.sample_orders import SampleOrders
from bagpipe_hpc.run.start.data_lineage import Lineage, data_step, lineage
from bagpipe_hpc.run.start.table_origins import Origins, SavedTables, TableOrigin, WarmStart
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.storage.exported import ExportedModel
from bagpipe_hpc.storage.graphs.graph_file import map_graph
from bagpipe_hpc.storage.graphs.reader import GraphShards
from bagpipe_hpc.storage.logits import LogitsFolder
from bagpipe_hpc.storage.shards.look_up_batches import LookUpBatches, place_ids
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards

_MOST_READERS = 8
"""Of the oracle, where the settings do not say: each reads some millions of samples a second."""
_SLOWEST_FILL_BYTES_PER_S = 20e6
"""Initialising or saving rows slower than this counts as standing still."""


@dataclass(frozen=True)
class Run:
    """What all ranks know of a run; the same on every rank.

    Attributes:
        config: its settings.
        manifest: of its data.
        schedule: what it consists of.
        start: the checkpoint that its rows and weights come from; None if it starts anew.
        warm_start: what a new training begins with; None for first weights by the seed.
        trains: whether it trains, and goes on from `start`. Else it scores samples: it takes the weights of `start`
            without the optimizers' states, and saves nothing.
        logits: where trainers leave what they predict; None where nothing is.
        replayed: evaluations of another run by which the policy orders samples, in place of its own.
        kept_evaluations: those of the step of `start` that stay, since the run does not make them again.
    """

    config: Config
    manifest: ShardManifest
    schedule: tuple[Segment, ...]
    start: Checkpoint | None = None
    warm_start: WarmStart | None = None
    trains: bool = True
    logits: LogitsFolder | None = None
    replayed: tuple[Heard, ...] = ()
    kept_evaluations: tuple[Evaluation, ...] = ()

    @cached_property
    def table_offsets(self) -> NDArray[np.int64]:
        """First row of each table among the rows of all tables, and their number, int64 `[tables + 1]`."""
        return table_offsets(self.manifest.table_rows)

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return int(self.table_offsets[-1])

    @cached_property
    def table_widths(self) -> tuple[int, ...]:
        """Width of the rows of each table.

        Raises:
            ConfigError: `model.embedding_dim_of` names no table.
        """
        return table_widths(self.config.model, self.tables.names)

    @cached_property
    def groups(self) -> tuple[RowGroup, ...]:
        """The tables by the widths of their rows; rows are numbered in each group apart.

        Raises:
            ConfigError: as `table_widths`, or no feature looks up in the tables of a width.
        """
        groups = []
        for tables in table_groups(self.tables, self.table_widths):
            first_rows, of_all = tables.tables.offsets.tolist(), self.table_offsets.tolist()
            look_ups = group_look_ups(self.manifest.feature_tables, tables.numbers, first_rows[:-1], of_all)
            if not look_ups.features and self.manifest.features:
                raise ConfigError(
                    f"model.embedding_dim_of = {self.config.model.embedding_dim_of!r}: no feature looks up in "
                    f"{', '.join(tables.tables.names)}; leave it out there"
                )
            groups.append(RowGroup(tables, RowRecord.of(self.config, tables.width), look_ups))
        return tuple(groups)

    @cached_property
    def frozen_tables(self) -> frozenset[str]:
        """Names of the tables whose rows training leaves as they are.

        Raises:
            ConfigError: `tables.frozen` names none.
        """
        return frozenset(chosen_names(self.config.tables.frozen, self.tables.names, "tables.frozen"))

    @property
    def model_facts(self) -> ModelFacts:
        """What the model's sizes depend on besides its own settings."""
        config, manifest = self.config, self.manifest
        widths = dict(zip(self.tables.names, self.table_widths, strict=True))
        features = feature_facts(config.features, manifest.features, widths)
        return ModelFacts(manifest.dense_features, features, config.train.seed, len(manifest.labels))

    def newest_checkpoint(self) -> Path | None:
        """Where the newest complete checkpoint is that the run wrote or goes on from; None if there is none."""
        found = find_checkpoints(Path(self.config.train.output))
        return found[-1] if found else self.start.directory if self.start else None

    @property
    def total_steps(self) -> int:
        """Training steps of the whole run."""
        return max((segment.last_step for segment in self.schedule), default=self.steps_done)

    @property
    def evaluated_first(self) -> frozenset[int]:
        """Test rows of the evaluations that the run makes before it trains: of the checkpoint that it goes on from."""
        first = takewhile(lambda segment: segment.kind is SegmentKind.EVALUATE, self.schedule)
        return frozenset(segment.samples for segment in first)

    @property
    def steps_done(self) -> int:
        """Training steps of the checkpoint that the run goes on from."""
        return self.start.manifest.step if self.start else 0

    @property
    def read_first(self) -> Checkpoint | ExportedModel | None:
        """The checkpoint that first weights come from; None where they come from the seed."""
        return self.start or (self.warm_start.source if self.warm_start else None)

    @cached_property
    def origins(self) -> Origins | None:
        """What rows begin with where a checkpoint has them under other numbers: its tables have grown since.

        None where rows have the numbers of the checkpoint that the run goes on from, or are all new.
        """
        if self.start is None:
            return self.warm_start.rows if self.warm_start else None
        then = self.start.manifest
        if lineage(then, self.manifest) is not Lineage.GROWN:
            return None
        rows, tables = SavedTables(self.start, with_state=True), tuple(map(TableOrigin, then.table_names))
        return Origins(rows, tables, has_grown=True)

    @property
    def data_step(self) -> int:
        """Training steps that were on earlier rows than these; epochs of these rows count from there."""
        return data_step(self.start.manifest if self.start else None, self.manifest)

    def with_linear(self, implementation: str) -> "Run":
        """The same run with `kernels.linear` settled."""
        kernels = replace(self.config.kernels, linear=implementation)
        return replace(self, config=replace(self.config, kernels=kernels))

    def with_sharing(self, name: str) -> "Run":
        """The same run with `cache.sharing` settled."""
        return replace(self, config=replace(self.config, cache=replace(self.config.cache, sharing=name)))

    def with_dense_sums(self, name: str) -> "Run":
        """The same run with `train.dense_sums` settled."""
        train = replace(self.config.train, dense_sums=name)
        return replace(self, config=replace(self.config, train=train))

    @property
    def batch_samples(self) -> int:
        """Samples of a batch, the largest one."""
        return max((min(one.batch_size, one.samples) for one in self.schedule), default=self.config.train.batch_size)

    @property
    def longest_segment(self) -> int:
        """Batches of the longest segment that is left."""
        return max((segment.batches for segment in self.schedule), default=0)

    @property
    def window(self) -> Window:
        """The window that the settings ask for, but not longer than a segment and a batch.

        Such a window sees a whole segment, and nothing is retired before its end: plans are those of any longer one.
        """
        lookahead, longest = self.config.lookahead, max(1, self.longest_segment)
        if lookahead.batches <= longest + 1:
            return Window(lookahead.batches, lookahead.group_batches)
        return Window(longest + 1, min(lookahead.group_batches, longest))

    def policy(self, trainers: int) -> RunPolicy:
        """The policy that plans the run for so many trainers."""
        manifest = self.manifest
        of_tables = manifest.mean_look_ups if manifest.ragged_features else ()
        cache_rows = self.config.cache.rows
        whole = self._policy(trainers, self.tables, manifest.feature_tables, of_tables, cache_rows)
        look_ups = [group.look_ups for group in self.groups]
        slicing = partial(dealt_whole, trainers) if any(segment.slices for segment in self.schedule) else None
        if len(self.groups) == 1:
            return RunPolicy(whole, [whole], look_ups, slicing)
        if whole.has_micro_batches:
            raise ConfigError(
                f"policy.name = {self.config.policy.name!r}: gives micro-batches, and tables have {len(self.groups)} "
                "widths, each with a planner of its own; leave out model.embedding_dim_of"
            )
        parts, uses, feature_tables = [], whole.facts.batch_look_ups, manifest.feature_tables
        uses = uses if uses.any() else np.ones_like(uses)  # nobody looks anything up
        for group in self.groups:
            tables = group.tables
            place = {number: place for place, number in enumerate(tables.numbers)}
            own_tables = tuple(place[feature_tables[feature]] for feature in group.look_ups.features)
            of_group = tuple(of_tables[number] for number in tables.numbers) if of_tables else ()
            own_rows = cache_rows and max(1, int(cache_rows * uses[list(tables.numbers)].sum() / uses.sum()))
            parts.append(self._policy(trainers, tables.tables, own_tables, of_group, own_rows))
        return RunPolicy(whole, parts, look_ups, slicing)

    def _policy(
        self,
        trainers: int,
        tables: Tables,
        feature_tables: tuple[int, ...],
        mean_look_ups: tuple[float, ...],
        cache_rows: int,
    ) -> Policy:
        """The policy of some tables."""
        config = self.config
        facts = RunFacts(
            tables.offsets,
            trainers,
            batch_size=self.batch_samples,
            seed=config.train.seed,
            kernels=config.kernels,
            verify=config.debug.verify_rows,
            feature_tables=feature_tables,
            mean_look_ups=mean_look_ups,
            sharing=config.cache.sharing,
            exchange=config.cache.exchange,
            cache_rows=cache_rows,
            training=self.sample_orders.training if self.trains else None,
            table_names=tables.names,
        )
        return build_policy(config.policy, facts)

    @cached_property
    def tables(self) -> Tables:
        """All embedding tables."""
        return Tables(self.manifest.table_rows, tuple(table.name for table in self.manifest.tables))

    def partitions(self, servers: int) -> tuple[RowPartition, ...]:
        """Where each row of each group lies.

        Raises:
            ConfigError: `tables.placement` cannot place these tables.
        """
        groups = ((group.tables.tables, group.record.bytes) for group in self.groups)
        return place_groups(self.config.tables, groups, servers)

    def server_bytes(self, servers: int) -> list[int]:
        """Size of all tables' parts on each server."""
        parts = list(zip(self.groups, self.partitions(servers), strict=True))
        return [sum(part.rows_on(number) * group.record.bytes for group, part in parts) for number in range(servers)]

    def is_in_memory(self, servers: int) -> bool:
        """Whether each of so many servers holds all its rows in memory; else `disk_memory` says what it may take."""
        limit_gb = self.config.tables.memory_gb
        return not limit_gb or max(self.server_bytes(servers)) <= limit_gb * 1e9

    def disk_memory(self, servers: int, server: int, unit_bytes: int) -> list[int]:
        """Bytes of memory that the rows of each group may take on a server whose rows lie on disk.

        Each group gets the least that it takes, however small it is, and a part of the rest by its size.

        Args:
            servers: their number.
            server: number of the one that is meant.
            unit_bytes: of which its disk reads and writes multiples.
        """
        layouts = self.disk_layouts(servers, server, unit_bytes)
        least = [layout.least_bytes for layout in layouts]
        sizes = [layout.rows * layout.record_bytes for layout in layouts]
        left_bytes = int(self.config.tables.memory_gb * 1e9) - sum(least)
        return [fixed + left_bytes * size // max(1, sum(sizes)) for fixed, size in zip(least, sizes, strict=True)]

    def disk_layouts(self, servers: int, server: int, unit_bytes: int) -> list[BlockLayout]:
        """How the rows of each group lie on the disk of a server; arguments as for `disk_memory`."""
        parts = zip(self.groups, self.partitions(servers), strict=True)
        return [BlockLayout.of(part.rows_on(server), group.record.width, unit_bytes) for group, part in parts]

    def fill_timeout_s(self, servers: int) -> float:
        """Longest wait for servers to fill or save their tables: `train.timeout_s`, and more the larger they are."""
        server_bytes = max(self.server_bytes(servers))
        return self.config.train.timeout_s + server_bytes / _SLOWEST_FILL_BYTES_PER_S

    def shards(self, segment: Segment) -> ClickShards:
        """The reader of the split that a segment's samples come from."""
        directory, split = Path(self.config.data.path), "train" if segment.is_training else segment.split
        limits = read_limits(self.config.features, self.manifest.features)
        decoder = lzf if use_native(self.config.kernels.backend, "lzf") else None
        if self.manifest.graph is None:
            return ClickShards(directory, self.manifest, split, limits, decoder)
        epoch = segment.epoch if segment.is_training else None
        draws = NeighbourDraws.of(self.config.graph.fan_outs, self.config.train.seed, split, epoch)
        return GraphShards(directory, self.manifest.stored(), split, lambda: self.graph, draws, decoder)

    @cached_property
    def graph(self) -> Graph:
        """The graph of data that has one; its file is mapped and looked at when it is first asked for.

        Raises:
            DataError: it is missing or damaged.
        """
        info = self.manifest.graph
        assert info is not None, "the data has a graph"
        return map_graph(Path(self.config.data.path) / info.file, self.total_rows, info.edges)

    def order(self, segment: Segment) -> SampleOrder | LaneOrder | SectionOrder:
        """The order of a segment's samples, as the policy wants it; those of an evaluation are not shuffled.

        Raises:
            PlanError: the policy's order does not use every sample once.
        """
        return self.sample_orders.of(segment)

    @cached_property
    def sample_orders(self) -> SampleOrders:
        """The orders of the run's samples, and what it takes to read in them."""
        return SampleOrders(self.config, self.manifest)

    @property
    def reader_threads(self) -> int:
        """Threads in which the oracle reads, on the host that it is on."""
        return self.config.data.reader_threads or min(len(os.sched_getaffinity(0)), _MOST_READERS)

    def batches(self, segment: Segment, threads: int = 1) -> Iterator[Bags]:
        """Rows of each batch of a segment, numbered through all tables.

        Args:
            segment: the segment.
            threads: that read ahead of whoever takes the batches; 1 or more.
        """
        tables = list(self.manifest.feature_tables)
        is_native = use_native(self.config.kernels.backend, "look_ups")
        with self.shards(segment) as shards:
            batches = LookUpBatches(
                shards,
                self.order(segment),
                np.diff(self.table_offsets)[tables],
                self.table_offsets[tables],
                look_ups.place if is_native else place_ids,
            )
            yield from batches.read(segment.batches, segment.sample_range, threads)
