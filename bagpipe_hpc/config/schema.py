"""The settings of a run: frozen dataclasses, each field documented below it.

`config.file.load_config` fills them from TOML and command-line overrides, `config.reference` makes
`docs/configuration.md` from them. Standard library only, so that a mistake in a configuration is reported at once.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.config.doors import (
    DENSE_SUMS,
    DOOR,
    MODELS,
    PLACEMENTS,
    POLICIES,
    ROW_OPTIMIZERS,
    SettingError,
    fill_settings,
)
from bagpipe_hpc.config.float32 import require_not_negative, require_positive
from bagpipe_hpc.config.models import MOST_WIDTH, WIDTHS
from bagpipe_hpc.config.rates import DenseRateConfig, RowsRateConfig

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "native", "reference")
LINEAR_LAYERS = ("auto", "onednn", "torch")
PLANNER_STATES = ("auto", "dense", "sparse")
MEASURES = ("beginning", "all")
DECAY_MODES = ("l2", "decoupled")
WARM_START_PARTS = ("all", "rows", "dense")
PRECISIONS = ("float32", "bfloat16")
ROW_SUMS = ("float32", "bfloat16", "float16")
SHARINGS = ("replicated", "home")
EXCHANGES = ("auto", "direct", "grid")
SEQUENCE = "sequence"
POOLINGS = ("sum", "mean", SEQUENCE)
"""What may become of the rows that a sample looks up for a feature."""
VERIFY_LEVELS = ("full", "quick")
SAME_HOST_WAYS = ("auto", "loads", "transfers")
TRANSFER_WAYS = ("messages", "one_sided")
TRANSFERS = ("auto", *TRANSFER_WAYS)
BEST_BY = ("auc", "log_loss", "group_auc")
ROLE_PLACEMENTS = ("auto", "rank_order")
MOST_THREADS = 1024
"""Of one process, as many as the largest hosts have cores. What the host at hand has is looked at before a run."""
MOST_TRAINERS = 32_000
"""The planner keeps the trainer that uses a row in 16 bits, with some to spare."""
MOST_EXACT_SAMPLES = 1 << 30
"""Of an evaluation whose predictions are all kept."""
_LONGEST_TIMEOUT_S = 31_536_000
_LONGEST_POLL_US = 1_000_000
_MOST_MEMORY_GB = 1_000_000
_MOST_HOPS = 4
_MOST_DRAWN = 1 << 16
"""Nodes of a sample at a hop, as many as a sequence may have rows."""


def _require(holds: bool, key: str, value: object, cure: str) -> None:
    if not holds:
        raise SettingError(key, value, cure)


@dataclass(frozen=True)
class DataConfig:
    """Where the prepared clicks are and how they are read."""

    path: str = ""
    """Shard directory written by `bagpipe prepare`."""
    block_rows: int = 8192
    """Rows that are read as one contiguous piece; an epoch's order permutes the blocks, then the rows inside each."""
    shuffle: bool = True
    """Permute the training rows anew in every epoch; false keeps the order of the shards."""
    lanes: int = 0
    """So many blocks, from all over the data, are open at once, and each batch takes the same number of rows of each.
    Then a trainer reads the blocks of its own slice alone; with 1 it reads all that the batch has
    (docs/sample-order.md). Fewer are used where a lane would have less than 8 blocks. 0 takes as many as the data have
    room for with 32 blocks each, 1,024 at most. Without effect if `shuffle` is false or a policy orders the samples."""
    verify: str = "full"
    """`full` checks every shard's checksum before training; `quick` checks sizes and shapes only."""
    reader_threads: int = 0
    """Threads in which the oracle reads samples ahead of planning; 0 takes one for each core that it may use, 8 at
    most."""

    def __post_init__(self) -> None:
        _require(self.block_rows >= 1, "data.block_rows", self.block_rows, "use 1 or more rows")
        _require(
            0 <= self.reader_threads <= MOST_THREADS,
            "data.reader_threads",
            self.reader_threads,
            f"use 1 to {MOST_THREADS} threads, or 0 for those that the cores allow",
        )
        _require(self.lanes >= 0, "data.lanes", self.lanes, "use 1 or more lanes, or 0 for those that the data allow")
        _require(self.verify in VERIFY_LEVELS, "data.verify", self.verify, f"use one of {', '.join(VERIFY_LEVELS)}")


@dataclass(frozen=True)
class ModelConfig:
    """The model: embedding rows go in, logits come out."""

    name: str = "dlrm"
    """Which model (docs/models.md): `dlrm`, `dlrm_dcnv2`, `wide_deep`, `deepfm`, `dcn`, `dcn_v2`, `din`, `graphsage`,
    or `package.module:Class` for one of your own (docs/extending.md)."""
    embedding_dim: int = 16
    """Width D of the embedding rows."""
    settings: Any = field(default=None, metadata={DOOR: MODELS})
    """The model's own settings."""
    precision: str = "float32"
    """Numbers that linear layers multiply: `float32`, or `bfloat16` on GPUs and on CPUs with AVX512-BF16 or AMX; models
    that compute their layers themselves run under torch's autocast. Weights, optimizers, rows, the loss and the
    gradients that trainers sum are float32 in both."""
    embedding_dim_of: dict[str, Any] = field(default_factory=dict)
    """The same as `embedding_dim` for single tables, such as `{ C3 = 4, C20 = 4 }`. Tables of one width share windows,
    caches and plans, so use few widths; docs/features.md says which models take several."""
    frozen: tuple[str, ...] = ()
    """Dense weights that training leaves as they are, by their names in the model; `*` stands for any characters, as in
    `["bottom.*"]`. Meant for a start from trained weights (`train.warm_start`)."""

    def __post_init__(self) -> None:
        fill_settings(self)
        _require(1 <= self.embedding_dim <= MOST_WIDTH, "model.embedding_dim", self.embedding_dim, f"use {WIDTHS}")
        widths = self.embedding_dim_of
        is_width = all(type(width) is int and 1 <= width <= MOST_WIDTH for width in widths.values())
        _require(is_width, "model.embedding_dim_of", widths, f"use {WIDTHS} for each table")
        bound = getattr(self.settings, "initial_bound", 0.0)
        _require(type(bound) in (int, float), "model.initial_bound", bound, "its Settings must say a number")
        if bound:
            require_positive("model.initial_bound", bound, "0 for 1/sqrt(rows of the table), or ")
        _require(self.precision in PRECISIONS, "model.precision", self.precision, f"use one of {', '.join(PRECISIONS)}")


@dataclass(frozen=True)
class FeaturesConfig:
    """What happens to the rows that a sample looks up for a feature with any number of ids."""

    pooling: str = "sum"
    """What a model gets of the rows of a sample and feature: their `sum`, their `mean` (by the number of ids, whatever
    weights these have), or all of them as a `sequence`. Without ids it is zeros, or an empty sequence."""
    pooling_of: dict[str, Any] = field(default_factory=dict)
    """The same for single features, such as `{ history = "sequence", genres = "mean" }`."""
    longest: int = 0
    """Most ids of a sample and feature that are used: the last ones; 0 takes all."""
    longest_of: dict[str, Any] = field(default_factory=dict)
    """The same for single features, such as `{ history = 50 }`."""

    def __post_init__(self) -> None:
        cure = f"use one of {', '.join(POOLINGS)}"
        _require(self.pooling in POOLINGS, "features.pooling", self.pooling, cure)
        _require(
            all(pooling in POOLINGS for pooling in self.pooling_of.values()),
            "features.pooling_of",
            self.pooling_of,
            f"{cure} for each feature",
        )
        _require(self.longest >= 0, "features.longest", self.longest, "use 1 id or more, or 0 for all")
        _require(
            all(type(longest) is int and longest >= 0 for longest in self.longest_of.values()),
            "features.longest_of",
            self.longest_of,
            "use 1 id or more for each feature, or 0 for all",
        )


@dataclass(frozen=True)
class OptimizerConfig:
    """How embedding rows and dense weights are updated."""

    rows: str = "rowwise_adagrad"
    """Optimizer of the embedding rows: `sgd`, `momentum`, `rowwise_adagrad` (one accumulator a row), `adagrad`, `adam`,
    `rowwise_adam` (one second moment a row), `ftrl`, or `package.module:Class` for one of your own
    (docs/extending.md)."""
    row_settings: Any = field(default=None, metadata={DOOR: ROW_OPTIMIZERS})
    """The row optimizer's own settings."""
    dense: str = "Adagrad"
    """Optimizer of the dense weights: the name of a class in `torch.optim` (not LBFGS or SparseAdam), or
    or `package.module:Class` for one of your own (docs/extending.md)."""
    dense_lr: float = 0.005
    """Learning rate of the dense weights."""
    dense_options: dict[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the dense optimizer, such as `{ momentum = 0.9 }`."""
    dense_clip_norm: float = 0.0
    """Longest gradient of all dense weights together: a longer one, summed over the trainers, is scaled down to this
    Euclidean norm; 0 leaves any as it is."""
    rows_clip_norm: float = 0.0
    """Longest gradient of an embedding row: a longer one, summed over the batch, is scaled down to this Euclidean norm,
    each row by itself; 0 leaves any as it is."""
    rows_weight_decay: float = 0.0
    """Draws the weights of embedding rows towards 0, each time that a batch uses them; 0 does not. See
    `rows_weight_decay_mode`."""
    rows_weight_decay_mode: str = "l2"
    """`l2` adds `rows_weight_decay` times the weights to the gradient of a row (torch's `weight_decay`); `decoupled`
    takes the learning rate times `rows_weight_decay` times the weights off the weights themselves, before the update
    (AdamW's). Rows that a batch does not use do not decay."""

    def __post_init__(self) -> None:
        fill_settings(self)
        require_positive("optimizer.dense_lr", self.dense_lr)
        for name in ("dense_clip_norm", "rows_clip_norm"):
            if getattr(self, name):
                require_positive(f"optimizer.{name}", getattr(self, name), "0 for none, or ")
        self._check_decay()

    def _check_decay(self) -> None:
        """See that the decay of rows has an effect that float32 weights can show."""
        key, decay, mode = "optimizer.rows_weight_decay", self.rows_weight_decay, self.rows_weight_decay_mode
        require_not_negative(key, decay)
        _require(mode in DECAY_MODES, f"{key}_mode", mode, f"use one of {', '.join(DECAY_MODES)}")
        if not decay or mode == "l2":
            return
        lr: Any = getattr(self.row_settings, "lr", None)
        cure = "takes the learning rate times the weights off, and what optimizer.rows names has no setting lr; use l2"
        _require(isinstance(lr, float), f"{key}_mode", mode, cure)
        cure = f"times rows_lr = {lr} must lie between 3e-8, less than which float32 weights do not show, and 1"
        _require(2.0**-25 <= decay * lr < 1, key, decay, f"{cure}; use another one, or the mode l2")


@dataclass(frozen=True)
class LookaheadConfig:
    """The oracle's window (BagPipe, SOSP 2023, section 3)."""

    batches: int = 40
    """Window L in batches, the current one included; 1 switches look-ahead and caching off."""
    group: int = 0
    """Batches C whose retired rows are written back together; 0 chooses max(1, batches // 4)."""

    def __post_init__(self) -> None:
        _require(self.batches >= 1, "lookahead.batches", self.batches, "use 1 or more batches")
        _require(self.group >= 0, "lookahead.group", self.group, "use 1 or more batches, or 0 for batches // 4")
        if self.batches > 1:
            _require(
                self.group < self.batches,
                "lookahead.group",
                self.group,
                f"use at most lookahead.batches - 1 = {self.batches - 1}, else training would wait for itself",
            )

    @property
    def group_batches(self) -> int:
        """The clean-up interval C that is used: `group`, or a quarter of the window (BagPipe's default)."""
        if self.batches == 1:
            return 1
        return self.group or max(1, self.batches // 4)


@dataclass(frozen=True)
class CacheConfig:
    """The row cache of each trainer."""

    rows: int = 0
    """Most rows that a trainer's cache may hold: a window that needs more is shortened; 0 takes what is needed."""
    measure: str = "beginning"
    """What tells the rows that a window needs: the run's `beginning`, and some more, so that training begins at
    once; or `all` its batches, read once before the first step, which is exact."""
    sharing: str = "auto"
    """Where rows live that several trainers use: `replicated` at all of them, which sum and update alike; `home` at
    one, to which the others send gradients, and which sends them copies; `auto`: `home` if there are two trainers or
    more, on CPUs, and the policy has plans for it."""
    exchange: str = "auto"
    """How rows with one home travel between trainers: `direct`, with a message to each other trainer; over a `grid` of
    R x C trainers in two hops, with R + C - 2 messages and all rows twice; `auto` takes the grid with many trainers."""

    def __post_init__(self) -> None:
        _require(self.rows >= 0, "cache.rows", self.rows, "use 1 or more rows, or 0 for what the window needs")
        _require(self.measure in MEASURES, "cache.measure", self.measure, f"use one of {', '.join(MEASURES)}")
        ways = ("auto", *SHARINGS)
        _require(self.sharing in ways, "cache.sharing", self.sharing, f"use one of {', '.join(ways)}")
        _require(self.exchange in EXCHANGES, "cache.exchange", self.exchange, f"use one of {', '.join(EXCHANGES)}")


@dataclass(frozen=True)
class PolicyConfig:
    """Who decides which rows are fetched, kept, summed and written back, and which trainer gets which sample."""

    name: str = "bagpipe"
    """Which policy: `bagpipe` keeps a row as long as a batch of the window uses it (`lookahead`, `cache`); `none` keeps
    none; the others are those of docs/policies.md; `package.module:Class` is one of your own (docs/extending.md)."""
    settings: Any = field(default=None, metadata={DOOR: POLICIES})
    """The policy's own settings."""

    def __post_init__(self) -> None:
        fill_settings(self)


@dataclass(frozen=True)
class TablesConfig:
    """The embedding tables at the servers."""

    placement: str = "round_robin"
    """Which server holds which rows: `round_robin` deals single rows, `contiguous` cuts all rows into equal ranges,
    `by_table` gives whole tables to servers, largest first; further ones for whole tables are in docs/policies.md;
    `package.module:Class` is one of your own (docs/extending.md). Results do not depend on it."""
    settings: Any = field(default=None, metadata={DOOR: PLACEMENTS})
    """The placement's own settings."""
    initial_bound: float = 0.0
    """First weights of rows are uniform between minus this and this; 0 takes what the model says (`wide_deep` and
    `deepfm`: 0.001), or else 1/sqrt(n) for a table of n rows, as the published DLRM does."""
    frozen: tuple[str, ...] = ()
    """Tables whose rows training leaves as they are, by name; `*` stands for any characters. Neither their weights nor
    their optimizer state change, whatever the optimizer would do without a gradient."""
    memory_gb: float = 0.0
    """Most memory that each server takes for its rows, in GB (10**9 bytes): what does not fit lies in a file in
    `ssd_path` (docs/ssd.md). 0, or as much as the rows take: all rows are in memory."""
    ssd_path: str = ""
    """Folder on a local disk of each server's host for rows that `memory_gb` does not hold. It must be there. The file
    has no name, and is gone when the server ends."""
    read_ahead: bool = True
    """Servers whose rows lie on disk read what plans will fetch before it is asked for; false is for measurements."""

    def __post_init__(self) -> None:
        fill_settings(self)
        if self.initial_bound:
            require_positive("tables.initial_bound", self.initial_bound, "0 for that of the model, or ")
        cure = f"use a number of GB of memory for each server, {_MOST_MEMORY_GB} at most, or 0 for all rows"
        _require(0 <= self.memory_gb <= _MOST_MEMORY_GB, "tables.memory_gb", self.memory_gb, cure)


@dataclass(frozen=True)
class RolesConfig:
    """How MPI ranks are split."""

    servers: int = 0
    """Embedding servers; one rank is the oracle, the rest train. 0 takes a trainer for each GPU, servers of the rest;
    without GPUs, or by `rank_order`, 2 servers of 5 or more ranks, else 1."""
    placement: str = "auto"
    """Which rank takes which role: `auto` puts trainers where GPUs are, servers where memory is, the oracle apart from
    servers; on a single host it is `rank_order`: the first rank is the oracle, servers and trainers follow."""
    server_poll_us: int = 200
    """Most microseconds that an idle server sleeps between polls of MPI while trainers may ask it for rows; 0 spins and
    wants a core of its own."""
    same_host: str = "auto"
    """How rows travel between a trainer and a server of its host: `auto` through memory that both share, `transfers` as
    between hosts; `loads` is `auto`, but refuses to run where a server is on another host."""
    transfers: str = "auto"
    """How rows travel where they do not lie in memory that both share: by `messages`, which the server answers, or by
    `one_sided` calls of MPI; `auto` tries both on the run's links before it begins, and takes what is faster."""

    def __post_init__(self) -> None:
        _require(self.transfers in TRANSFERS, "roles.transfers", self.transfers, f"use one of {', '.join(TRANSFERS)}")
        _require(
            self.same_host in SAME_HOST_WAYS,
            "roles.same_host",
            self.same_host,
            f"use one of {', '.join(SAME_HOST_WAYS)}",
        )
        _require(
            self.placement in ROLE_PLACEMENTS,
            "roles.placement",
            self.placement,
            f"use one of {', '.join(ROLE_PLACEMENTS)}",
        )
        _require(self.servers >= 0, "roles.servers", self.servers, "use 1 or more servers, or 0 for the default")
        _require(
            0 <= self.server_poll_us <= _LONGEST_POLL_US,
            "roles.server_poll_us",
            self.server_poll_us,
            f"use 0 to {_LONGEST_POLL_US} microseconds: trainers wait as long for each answer",
        )


@dataclass(frozen=True)
class TrainConfig:
    """Length, outputs and arithmetic of a run."""

    batch_size: int = 2048
    """Samples of a global batch, shared out over the trainers: in contiguous slices, unless the policy says else."""
    epochs: int = 1
    """Passes over the training rows."""
    max_steps: int = 0
    """Stop after this many steps in all; 0 trains all epochs to their end."""
    seed: int = 1
    """Seed of the first weights and of the sample order."""
    output: str = "output"
    """Folder for the checkpoint, the resolved configuration, the metrics and the logs."""
    overwrite: bool = False
    """Replace an earlier run in `output`; false refuses to touch one."""
    resume: str = ""
    """Go on from a checkpoint: `auto` from the newest complete one in `output`, or from the start where there is none;
    else the checkpoint's folder, or a run's output folder for its newest. Empty starts anew."""
    preflight: bool = False
    """Examine hosts, links and the output folder first, as `bagpipe doctor` does; a failed check refuses the run."""
    checkpoint_every_steps: int = 0
    """Steps between checkpoints besides the one at the end; 0 writes only that one."""
    full_checkpoint_every: int = 1
    """Every so many checkpoints one holds all rows, the first of a start among them; those between hold the rows that
    were updated since the one before, and need it. 1: each holds all rows, as the one-rank run's do."""
    checkpoint_copy: bool = True
    """Servers copy the rows of a checkpoint where memory is free for it, and write the copy while training goes on;
    false: training stands still while they write."""
    keep_checkpoints: int = 0
    """Complete checkpoints that are kept in `output`, and those that they need: older ones are removed after a new one;
    0 keeps all."""
    checkpoint_at_end: bool = True
    """Write a checkpoint when the last step is done; false is for measurements, which need no result."""
    evaluate: bool = True
    """Evaluate on the test rows after every epoch, and at the end."""
    evaluate_every_steps: int = 0
    """Steps between evaluations besides those after every epoch; 0 makes none within an epoch."""
    evaluate_samples: int = 0
    """Test rows of an evaluation within an epoch: the first so many; 0 takes all. After an epoch it is always all."""
    exact_auc_samples: int = 1 << 24
    """Test rows up to which an AUC is exact: each trainer keeps its own predictions. Beyond, they are counted in
    2**20 bins, and the AUC comes with a bound of its error."""
    auc_group: str = ""
    """Sparse feature by whose ids test rows are grouped for an AUC by group, such as `C1`; empty for none. Evaluations
    of more than `exact_auc_samples` rows have none."""
    best_by: str = "auc"
    """By what evaluations are compared: `auc` or `group_auc`, the higher the better, or `log_loss`, the lower."""
    keep_best: bool = False
    """Write a checkpoint after each evaluation that is the best so far, and keep that one whatever `keep_checkpoints`
    says; `checkpoints/best.json` names it."""
    stop_after: int = 0
    """End training, with a checkpoint, after so many evaluations in a row that were not better; 0 trains to the end."""
    stop_min_delta: float = 0.0
    """What `stop_after` calls better: by at least this."""
    log_every_steps: int = 10
    """Steps between progress lines and metrics records."""
    device: str = "auto"
    """Where the trainers compute: `cpu`, `cuda`, or `auto` for a GPU where there is one."""
    threads: int = 1
    """CPU threads of a trainer's dense model; 0 shares the cores that a trainer may use with the trainers that may use
    them too, and gives all trainers the least of these numbers."""
    deterministic: bool = False
    """Sum dense gradients in rank order too, so that any number of trainers gives the reference's bits; slower with
    Horovod. Sums by `mpi` (`dense_sums`) are always in that order. Trainers that add changes to one row (`policy.name =
    "het"`) do so one after the other, in that order."""
    row_sums: str = "float32"
    """Numbers in which gradients of rows travel between trainers: `float32`; or `bfloat16` or `float16`, of half the
    bytes. They are added in float32; the sum itself is rounded too from three trainers on. See docs/optimizers.md."""
    reference_slices: int = 1
    """One-rank run only: sum gradients over this many slices of a batch, as that many trainers would."""
    trace: str = ""
    """File for a timeline of all ranks (Chrome's trace format); empty for none."""
    timeout_s: float = 300.0
    """Longest wait for another rank before the job is ended with a message that names what was waited for."""
    warm_start: str = ""
    """Start anew, with the weights of this checkpoint or exported folder instead of the seed's: rows by table and
    value, the dense half by name. It is step 0 of another training, with new optimizer states. Where `resume` finds a
    checkpoint, that goes first."""
    warm_start_takes: str = "all"
    """What `warm_start` takes of the checkpoint: `all`, `rows` alone, or the `dense` half alone."""
    dense_sums: str = "horovod"
    """What sums dense gradients over the trainers: `horovod`, in a thread that keeps a core busy; `mpi`, with messages
    and in rank order, for trainers without a core to spare; or `auto`: `horovod` on GPUs, and where each trainer has a
    core more than `threads`, else `mpi`. The run's `config.toml` says which it was."""
    plans: str = ""
    """Folder of plans that `bagpipe plan --save` wrote for this run: the oracle sends these and plans nothing, with the
    same bits (docs/plan.md). Plans of another run are refused. Empty: the oracle plans."""

    status_every_s: float = 2.0
    """Seconds between the small files in which each rank says what it does, for `bagpipe top`; 0 for none, else 1 or
    more."""
    prometheus: str = ""
    """Folder for a file of each rank for node exporter's textfile collector, written as often; empty for none."""
    tensorboard: bool = False
    """Write event files for TensorBoard to `output`/tensorboard; needs the package `tensorboard`."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "log_every_steps", "reference_slices"):
            _require(getattr(self, name) >= 1, f"train.{name}", getattr(self, name), "use 1 or more")
        _require(
            self.full_checkpoint_every >= 1,
            "train.full_checkpoint_every",
            self.full_checkpoint_every,
            "use 1 for all rows in every checkpoint, or more",
        )
        counts = ("max_steps", "seed", "checkpoint_every_steps", "keep_checkpoints", "threads", "evaluate_every_steps")
        for name in (*counts, "evaluate_samples", "exact_auc_samples", "stop_after", "stop_min_delta"):
            _require(getattr(self, name) >= 0, f"train.{name}", getattr(self, name), "use 0 or more")
        parts = self.warm_start_takes
        _require(
            parts in WARM_START_PARTS, "train.warm_start_takes", parts, f"use one of {', '.join(WARM_START_PARTS)}"
        )
        _require(self.best_by in BEST_BY, "train.best_by", self.best_by, f"use one of {', '.join(BEST_BY)}")
        by_group = self.best_by != "group_auc" or bool(self.auc_group)
        _require(by_group, "train.best_by", self.best_by, "set train.auc_group, or use auc or log_loss")
        compares = self.keep_best or self.stop_after > 0
        cure = "leave it out: train.keep_best and train.stop_after compare evaluations"
        _require(self.evaluate or not compares, "train.evaluate", self.evaluate, cure)
        _require(
            self.exact_auc_samples <= MOST_EXACT_SAMPLES,
            "train.exact_auc_samples",
            self.exact_auc_samples,
            f"use {MOST_EXACT_SAMPLES} at most; beyond, the AUC comes with a bound of its error",
        )
        _require(self.seed < 1 << 63, "train.seed", self.seed, "use a number below 2**63")
        _require(self.threads <= MOST_THREADS, "train.threads", self.threads, f"use {MOST_THREADS} threads at most")
        _require(
            self.reference_slices <= MOST_TRAINERS,
            "train.reference_slices",
            self.reference_slices,
            f"use {MOST_TRAINERS} at most, as many trainers as a run may have",
        )
        _require(
            0 < self.timeout_s <= _LONGEST_TIMEOUT_S,
            "train.timeout_s",
            self.timeout_s,
            f"use a number of seconds above 0, {_LONGEST_TIMEOUT_S} (a year) at most",
        )
        is_often = self.status_every_s == 0 or 1 <= self.status_every_s <= _LONGEST_TIMEOUT_S
        _require(is_often, "train.status_every_s", self.status_every_s, "use 0 for none, or 1 or more")
        told = self.status_every_s > 0 or not self.prometheus
        _require(told, "train.prometheus", self.prometheus, "set train.status_every_s, which is 0, or leave it out")
        _require(self.row_sums in ROW_SUMS, "train.row_sums", self.row_sums, f"use one of {', '.join(ROW_SUMS)}")
        ways = ("auto", *DENSE_SUMS.entries)
        _require(self.dense_sums in ways, DENSE_SUMS.key, self.dense_sums, f"use one of {', '.join(ways)}")
        _require(self.device in DEVICES, "train.device", self.device, f"use one of {', '.join(DEVICES)}")
        _require(bool(self.output), "train.output", self.output, "name a folder")


@dataclass(frozen=True)
class KernelsConfig:
    """Native code: the planner, row operations."""

    backend: str = "auto"
    """`native` (C++, CUDA), `reference` (NumPy and torch, same results), or `auto` for native where it was built."""
    linear: str = "auto"
    """What multiplies the matrices of linear layers: `onednn`, `torch` (its BLAS; the GPU's on a GPU), or `auto`: what
    the checkpoint was trained with where a run goes on, else oneDNN where it is faster by 5 % at least on the
    trainers' x86 CPUs, measured before the first step, and torch elsewhere. The run's `config.toml` says which it was.
    A model of your own that computes its layers itself takes `auto` or `torch`."""
    planner_threads: int = 0
    """Threads of the oracle's native planner, which share out tables and rows; 0 takes one for each 200,000 look-ups of
    a batch, but not more than there are cores that it may use, and 16 at most."""
    planner_state: str = "auto"
    """Rows that the native planner keeps: `dense` all, `sparse` those in the window, `auto` what cannot take more."""
    row_threads: int = 0
    """CPU threads of a trainer's native row operations (gather, scatter, sums, updates); 0 takes `train.threads`."""

    def __post_init__(self) -> None:
        _require(self.backend in BACKENDS, "kernels.backend", self.backend, f"use one of {', '.join(BACKENDS)}")
        _require(self.linear in LINEAR_LAYERS, "kernels.linear", self.linear, f"use one of {', '.join(LINEAR_LAYERS)}")
        _require(
            0 <= self.planner_threads <= MOST_THREADS,
            "kernels.planner_threads",
            self.planner_threads,
            f"use 1 to {MOST_THREADS} threads, or 0 for those that the cores and a batch allow",
        )
        _require(
            self.planner_state in PLANNER_STATES,
            "kernels.planner_state",
            self.planner_state,
            f"use one of {', '.join(PLANNER_STATES)}",
        )
        _require(
            0 <= self.row_threads <= MOST_THREADS,
            "kernels.row_threads",
            self.row_threads,
            f"use 1 to {MOST_THREADS} threads, or 0 for train.threads",
        )


@dataclass(frozen=True)
class DebugConfig:
    """For tests, and for those who look for an error."""

    verify_rows: bool = False
    """Carry a version with every row and check each read against the plan."""
    ssd_path_in_memory: bool = False
    """Let `tables.ssd_path` lie in a memory file system such as `/dev/shm`, for tests: rows on it take memory, whatever
    `tables.memory_gb` says."""


@dataclass(frozen=True)
class GraphConfig:
    """Which neighbours of a sample's node are looked up, where the data has a graph (docs/graphs.md)."""

    fan_outs: tuple[int, ...] = ()
    """Neighbours of a node that are drawn at each hop, such as `[10, 5]`: ten of the sample's node, then five of each
    of these. Data with a graph needs it, other data has no use for it."""

    def __post_init__(self) -> None:
        is_count = min(self.fan_outs, default=1) >= 1 and len(self.fan_outs) <= _MOST_HOPS
        cure = f"use 1 to {_MOST_HOPS} hops of 1 neighbour or more each, such as [10, 5]"
        _require(is_count, "graph.fan_outs", list(self.fan_outs), cure)
        drawn = math.prod(self.fan_outs)
        cure = f"a sample has {drawn} nodes at its last hop; use fewer, {_MOST_DRAWN} at most"
        _require(drawn <= _MOST_DRAWN, "graph.fan_outs", list(self.fan_outs), cure)


@dataclass(frozen=True)
class Config:
    """All settings of a run; a section of the TOML file each."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    rows_rate: RowsRateConfig = field(default_factory=RowsRateConfig)
    dense_rate: DenseRateConfig = field(default_factory=DenseRateConfig)
    lookahead: LookaheadConfig = field(default_factory=LookaheadConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    tables: TablesConfig = field(default_factory=TablesConfig)
    roles: RolesConfig = field(default_factory=RolesConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    kernels: KernelsConfig = field(default_factory=KernelsConfig)
    debug: DebugConfig = field(default_factory=DebugConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)

    @property
    def initial_bound(self) -> float:
        """Bound of the first weights of rows: `tables.initial_bound`, or the model's own; 0: one for each table."""
        bound: float = self.tables.initial_bound or getattr(self.model.settings, "initial_bound", 0.0)
        return bound
