"""Length, outputs and arithmetic of a run."""

from dataclasses import dataclass

from bagpipe_hpc.config.checks import MOST_THREADS, require, require_one_of
from bagpipe_hpc.config.doors import DENSE_SUMS
from bagpipe_hpc.config.sections.execution import MOST_TRAINERS

BEST_BY = ("auc", "log_loss", "group_auc")
DEVICES = ("auto", "cpu", "cuda")
ROW_SUMS = ("float32", "bfloat16", "float16")
AT_ONCE, LATE = WEIGHT_GRADIENTS = ("at_once", "late")
MOVER, OWN, _ = SUMS_THREADS = ("mover", "own", "auto")
WARM_START_PARTS = ("all", "rows", "dense")
MOST_EXACT_SAMPLES = 1 << 30
"""Most test rows of an evaluation whose predictions are all kept."""
_LONGEST_TIMEOUT_S = 31_536_000


@dataclass(frozen=True)
class TrainConfig:
    """Length, outputs and arithmetic of a run."""

    batch_size: int = 2048
    """Samples of a global batch, shared out over the trainers: in contiguous slices, unless a policy says otherwise."""
    epochs: int = 1
    """Passes over the training rows."""
    max_steps: int = 0
    """Stop after this many steps in all, including those that a policy passes over; 0 trains all epochs to the end."""
    seed: int = 1
    """Seed of the initial weights and of the sample order."""
    output: str = "output"
    """Folder for the checkpoint, the resolved configuration, the metrics and the logs."""
    overwrite: bool = False
    """Replace an earlier run in `output`, or, of a run that goes on, what is newer than the checkpoint of `resume`;
    false refuses to touch either."""
    resume: str = ""
    """Go on from a checkpoint: `auto` from the newest complete one in `output`, or from the start where there is none;
    or a checkpoint's folder, or a run's output folder for its newest. Empty starts anew."""
    preflight: bool = False
    """Check hosts, links and the output folder first, as `bagpipe doctor` does; if a check fails the run is refused."""
    checkpoint_every_steps: int = 0
    """Steps between checkpoints, besides the one at the end; 0 writes only that one."""
    full_checkpoint_every: int = 1
    """One in so many checkpoints holds all rows, and so does the first one of each start; the others hold the rows that
    were updated since the one before, and need it. 1: each holds all rows, as always in the one-rank run."""
    checkpoint_copy: bool = True
    """Servers copy the rows of a checkpoint if memory is free for it, and write the copy while training goes on;
    false: training stands still while they write."""
    keep_checkpoints: int = 0
    """Number of complete checkpoints that are kept in `output`, besides those that they need; older ones are removed
    after each new one. 0 keeps all."""
    checkpoint_at_end: bool = True
    """Write a checkpoint when the last step is done; false is for measurements, which need no result."""
    evaluate: bool = True
    """Evaluate on the test rows after every epoch, and at the end."""
    evaluate_every_steps: int = 0
    """Steps between evaluations, besides those after every epoch; 0 makes none within an epoch."""
    evaluate_samples: int = 0
    """How many test rows an evaluation within an epoch takes, the first ones; 0 takes all. After an epoch all are
    taken."""
    exact_auc_samples: int = 1 << 24
    """Number of test rows up to which an AUC is exact: each trainer keeps its own predictions. With more, predictions
    are counted in 2**20 bins, and the AUC comes with a bound on its error."""
    auc_group: str = ""
    """Sparse feature by whose ids test rows are grouped for an AUC by group, such as `C1`; empty for none. Evaluations
    of more than `exact_auc_samples` rows have none."""
    best_by: str = "auc"
    """Measure by which evaluations are compared: `auc` or `group_auc`, where higher is better, or `log_loss`, where
    lower is."""
    keep_best: bool = False
    """Write a checkpoint after each evaluation that is the best so far, and keep that one whatever `keep_checkpoints`
    says; `checkpoints/best.json` names it."""
    stop_after: int = 0
    """End training, with a checkpoint, after so many evaluations in a row that were not better; 0 trains to the end."""
    stop_min_delta: float = 0.0
    """By at least how much an evaluation must be better for `stop_after` to count it as better."""
    log_every_steps: int = 10
    """Steps between progress lines and metrics records."""
    log_trainers: int = 16
    """With up to so many trainers, a metrics record has the figures of each. It always has their mean, and names the
    trainer that the others waited for; `summary.json` has the figures of each."""
    device: str = "auto"
    """Where the trainers compute: `cpu`, `cuda`, or `auto`, on GPUs if every trainer has one of its own, otherwise on
    CPUs."""
    threads: int = 1
    """CPU threads of a trainer's dense model; 0: trainers that may use the same cores share them evenly, and all
    trainers take the smallest share."""
    deterministic: bool = False
    """Sum dense gradients in rank order, too, so that any number of trainers gives the reference's bits; slower with
    Horovod. Sums by `mpi` (`dense_sums`) are always in that order. Trainers that add changes to one row (`policy.name =
    "het"`) do so one after the other, in that order."""
    row_sums: str = "float32"
    """Type of numbers as which gradients of rows travel between trainers: `float32`; or `bfloat16` or `float16`, which
    take half the bytes. They are added in float32; from three trainers on, the sum is rounded, too. See
    docs/optimizers.md."""
    reference_slices: int = 1
    """One-rank run only: sum gradients over this many slices of a batch, as that many trainers would."""
    trace: str = ""
    """File for a timeline of all ranks (Chrome's trace format); empty for none."""
    timeout_s: float = 300.0
    """Longest wait for another rank before the job is ended with a message that names what was waited for."""
    warm_start: str = ""
    """Start anew, with the weights of this checkpoint or exported folder instead of the seed's: rows by table and
    value, the dense half by name. It is step 0 of another training, with new optimizer states. Where `resume` finds a
    checkpoint, that is used instead."""
    warm_start_takes: str = "all"
    """What `warm_start` takes of the checkpoint: `all`, only `rows`, or only the `dense` half."""
    dense_sums: str = "horovod"
    """What sums dense gradients over the trainers: `horovod`, in a thread that keeps a core busy; `mpi`, with messages
    and in rank order, for trainers without a core to spare; `grid`, with messages over a grid of trainers, for many of
    them; or `auto`, the first that applies of: `horovod` on GPUs, `grid` from 64 trainers on, `horovod` if each trainer
    has a core more than `threads`, `mpi`. The run's `config.toml` says which it was."""
    sums_thread: str = "auto"
    """Which thread moves sums of dense gradients by messages (`dense_sums = mpi` or `grid`) on while a trainer
    computes: the `mover`, beside rows; one of its `own`, which keeps a core busy until the sums are there; or `auto`:
    its own where the trainer has two cores more than `threads`. The bits are the same."""
    plans: str = ""
    """Folder of plans that `bagpipe plan --save` wrote for this run: the oracle sends these and plans nothing, with the
    same bits (docs/plan.md). Plans of another run are refused. Empty: the oracle plans."""

    status_every_s: float = 2.0
    """Seconds between the small files in which each rank says what it does, for `bagpipe top`; 0 for none, otherwise 1
    or more."""
    prometheus: str = ""
    """Folder for a file of each rank for node exporter's textfile collector, written every `status_every_s` seconds;
    empty for none."""
    tensorboard: bool = False
    """Write event files for TensorBoard to `output`/tensorboard; needs the package `tensorboard`."""
    weight_gradients: str = AT_ONCE
    """When several trainers on CPUs compute the gradients of linear layers' weights: `at_once`, with those of the
    layers' inputs; or `late`, after all of those, so that gradients of rows leave sooner and travel meanwhile. The bits
    are the same. It pays with many trainers whose steps take several milliseconds (docs/simulate.md)."""
    late_share: float = 1.0
    """Which gradients of weights are late with `weight_gradients = late`: those of the first layers, as long as these
    hold no more than this share of the dense weights."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "log_every_steps", "reference_slices"):
            require(getattr(self, name) >= 1, f"train.{name}", getattr(self, name), "use 1 or more")
        require(
            self.full_checkpoint_every >= 1,
            "train.full_checkpoint_every",
            self.full_checkpoint_every,
            "use 1 for all rows in every checkpoint, or more",
        )
        counts = ("max_steps", "seed", "checkpoint_every_steps", "keep_checkpoints", "threads", "evaluate_every_steps")
        for name in (*counts, "log_trainers", "evaluate_samples", "exact_auc_samples", "stop_after", "stop_min_delta"):
            require(getattr(self, name) >= 0, f"train.{name}", getattr(self, name), "use 0 or more")
        require_one_of("train.warm_start_takes", self.warm_start_takes, WARM_START_PARTS)
        self._check_evaluations()
        require(self.seed < 1 << 63, "train.seed", self.seed, "use a number below 2**63")
        require(self.threads <= MOST_THREADS, "train.threads", self.threads, f"use {MOST_THREADS} threads at most")
        require(
            self.reference_slices <= MOST_TRAINERS,
            "train.reference_slices",
            self.reference_slices,
            f"use {MOST_TRAINERS} at most, as many trainers as a run may have",
        )
        require(
            0 < self.timeout_s <= _LONGEST_TIMEOUT_S,
            "train.timeout_s",
            self.timeout_s,
            f"use a number of seconds above 0, {_LONGEST_TIMEOUT_S} (a year) at most",
        )
        is_often = self.status_every_s == 0 or 1 <= self.status_every_s <= _LONGEST_TIMEOUT_S
        require(is_often, "train.status_every_s", self.status_every_s, "use 0 for none, or 1 or more")
        told = self.status_every_s > 0 or not self.prometheus
        require(told, "train.prometheus", self.prometheus, "set train.status_every_s, which is 0, or leave it out")
        require_one_of("train.row_sums", self.row_sums, ROW_SUMS)
        require_one_of(DENSE_SUMS.key, self.dense_sums, ("auto", *DENSE_SUMS.entries))
        require_one_of("train.sums_thread", self.sums_thread, SUMS_THREADS)
        require_one_of("train.weight_gradients", self.weight_gradients, WEIGHT_GRADIENTS)
        require(0 <= self.late_share <= 1, "train.late_share", self.late_share, "use a share from 0 to 1")
        require_one_of("train.device", self.device, DEVICES)
        require(bool(self.output), "train.output", self.output, "name a folder")

    @property
    def row_sum_bytes(self) -> int:
        """Bytes of a number of a row's gradient that travels between trainers."""
        return 4 if self.row_sums == "float32" else 2

    @property
    def share_of_late_weights(self) -> float:
        """Largest share of the dense weights that may have late gradients."""
        return self.late_share if self.weight_gradients == LATE else 0.0

    def _check_evaluations(self) -> None:
        """Check that evaluations can be made and compared as they are asked for."""
        require_one_of("train.best_by", self.best_by, BEST_BY)
        by_group = self.best_by != "group_auc" or bool(self.auc_group)
        require(by_group, "train.best_by", self.best_by, "set train.auc_group, or use auc or log_loss")
        compares = self.keep_best or self.stop_after > 0
        cure = "leave it out: train.keep_best and train.stop_after compare evaluations"
        require(self.evaluate or not compares, "train.evaluate", self.evaluate, cure)
        require(
            self.exact_auc_samples <= MOST_EXACT_SAMPLES,
            "train.exact_auc_samples",
            self.exact_auc_samples,
            f"use {MOST_EXACT_SAMPLES} at most; beyond, the AUC comes with a bound of its error",
        )
