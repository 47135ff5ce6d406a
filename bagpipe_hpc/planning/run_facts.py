"""What a policy is told: of the run, of the rows that it orders, of rows that it watches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.schema import KernelsConfig
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.exchange_grid import AUTO, Grid, choose_grid
from bagpipe_hpc.plan.heard import Heard


@dataclass(frozen=True)
class TrainingRows:
    """What a policy knows of the rows that it is to order, and of the run that trains on them.

    Attributes:
        directory: the folder with the shards, `data.path`.
        digest: digest of the training shards (`ShardManifest.digest`).
        batch_size: samples of a batch; the last one of an epoch may have fewer.
        seed: `train.seed`.
        sample_look_ups: look-ups of a sample, on average.
        row_bytes: bytes that are kept for a row of the usual width: weights and the optimizer's state.
        cache_rows: `cache.rows`; a policy whose order depends on it must name it in `Policy.order_settings`.
        evaluated_every: `train.evaluate_every_steps`, counted from the first step on these rows; 0 without evaluations.
        heard: for a policy that `hears`, the evaluations so far, in their order.
    """

    directory: str = ""
    digest: str = ""
    batch_size: int = 1
    seed: int = 0
    sample_look_ups: float = 1.0
    row_bytes: int = 4
    cache_rows: int = 0
    evaluated_every: int = 0
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True)
class WatchedRows:
    """Rows whose weights a policy is shown in the course of an epoch.

    Attributes:
        rows: global rows, int64 `[n]`.
        before: numbers of the batches of an epoch, from 1, before which the policy is shown the rows: a segment ends
            there.
    """

    rows: NDArray[np.int64]
    before: tuple[int, ...]


@dataclass(frozen=True)
class Sight:
    """What a policy is shown of the rows that it watches.

    Attributes:
        epoch: number of the epoch, from 0.
        batch: number of the epoch's batch that comes next.
        step: training steps done.
        weights: weights of the watched rows, float32 `[n, D]`.
        look_ups: gives the global rows of any batch of the epoch, by its number.
    """

    epoch: int
    batch: int
    step: int
    weights: NDArray[np.float32]
    look_ups: Callable[[int], Bags]


@dataclass(frozen=True)
class RunFacts:
    """What a policy knows of a run.

    Attributes:
        table_offsets: first row of each table and the number of all rows, int64 `[tables + 1]`.
        trainers: number of trainers T; in the reference, the number of slices over which it sums.
        batch_size: most samples of a batch.
        seed: `train.seed`, for what a policy draws at random.
        kernels: which implementations are wanted.
        verify: put the expected version of every row into the plans (`debug.verify_rows`).
        feature_tables: the table that each feature looks up, `[F]`; features may share a table, and a table may have
            none. If empty, feature f has table f; if there is one table, all features have it.
        mean_look_ups: look-ups of a sample in each table, on average, `[tables]`. If empty, features are one-hot: each
            has one look-up a sample.
        sharing: `cache.sharing`, where rows live that several trainers use; never `auto` for a policy that is made from
            the settings.
        exchange: `cache.exchange`, over which trainers rows with one home travel.
        cache_rows: slots that a trainer's cache may have for these tables: `cache.rows`, or a part of it where tables
            have several widths; 0 where that is not set.
        training: the training rows; None in a run that does not train.
        table_names: name of each table, `[tables]`; set in a run.
    """

    table_offsets: NDArray[np.int64]
    trainers: int
    batch_size: int
    seed: int = 0
    kernels: KernelsConfig = field(default_factory=KernelsConfig)
    verify: bool = False
    feature_tables: tuple[int, ...] = ()
    mean_look_ups: tuple[float, ...] = ()
    sharing: str = "replicated"
    exchange: str = AUTO
    cache_rows: int = 0
    training: TrainingRows | None = None
    table_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(0 <= table < self.tables for table in self.feature_tables):
            raise ValueError(f"feature_tables {self.feature_tables}: there are {self.tables} tables, from 0")
        if self.mean_look_ups and len(self.mean_look_ups) != self.tables:
            raise ValueError(f"mean_look_ups {self.mean_look_ups}: there are {self.tables} tables")

    @property
    def grid(self) -> Grid:
        """The grid over which trainers exchange rows with one home."""
        return choose_grid(self.exchange, self.trainers).grid

    @property
    def tables(self) -> int:
        """Number of tables."""
        return len(self.table_offsets) - 1

    @property
    def total_rows(self) -> int:
        """Rows of all tables."""
        return int(self.table_offsets[-1])

    @property
    def features(self) -> int:
        """Number of features F; 1 where a single table may have any number."""
        return len(self.feature_tables) or self.tables

    @property
    def is_one_hot(self) -> bool:
        """Whether each sample looks up exactly one row for each feature."""
        return not self.mean_look_ups

    @property
    def batch_look_ups(self) -> NDArray[np.float64]:
        """Look-ups of a full batch in each table, on average, float64 `[tables]`."""
        of_features = np.bincount(self.feature_tables or range(self.tables), minlength=self.tables)
        return self.batch_size * np.asarray(self.mean_look_ups or of_features, dtype=np.float64)

    @property
    def slice_rows(self) -> int:
        """Most rows that a slice of the default size uses; with ragged features, for the average number of look-ups."""
        samples = -(-self.batch_size // self.trainers)
        look_ups = np.ceil(self.batch_look_ups * (samples / self.batch_size))
        return int(np.minimum(np.diff(self.table_offsets), look_ups).sum())
