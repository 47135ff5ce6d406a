"""How embedding rows and dense weights are updated."""

from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.config.checks import require, require_one_of
from bagpipe_hpc.config.doors import DOOR, ROW_OPTIMIZERS, fill_settings
from bagpipe_hpc.config.float32 import require_not_negative, require_positive

DECAY_MODES = ("l2", "decoupled")


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
    """Optimizer of the dense weights: the name of a class in `torch.optim` (not LBFGS or SparseAdam),
    or `package.module:Class` for one of your own (docs/extending.md)."""
    dense_lr: float = 0.005
    """Learning rate of the dense weights."""
    dense_options: dict[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the dense optimizer, such as `{ momentum = 0.9 }`."""
    dense_clip_norm: float = 0.0
    """Largest norm of the gradient of all dense weights together: a longer one, summed over the trainers, is scaled
    down to this Euclidean norm; 0 leaves any as it is."""
    rows_clip_norm: float = 0.0
    """Largest norm of an embedding row's gradient: a longer one, summed over the batch, is scaled down to this
    Euclidean norm, each row by itself; 0 leaves any as it is."""
    rows_weight_decay: float = 0.0
    """How strongly the weights of embedding rows are pulled towards 0 each time that a batch uses them; 0: not at all.
    See `rows_weight_decay_mode`."""
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
        """Check that the decay of rows has an effect that float32 weights can show."""
        key, decay, mode = "optimizer.rows_weight_decay", self.rows_weight_decay, self.rows_weight_decay_mode
        require_not_negative(key, decay)
        require_one_of(f"{key}_mode", mode, DECAY_MODES)
        if not decay or mode == "l2":
            return
        lr: Any = getattr(self.row_settings, "lr", None)
        cure = "takes the learning rate times the weights off, and what optimizer.rows names has no setting lr; use l2"
        require(isinstance(lr, float), f"{key}_mode", mode, cure)
        cure = f"times rows_lr = {lr} must lie between 3e-8, less than which float32 weights do not show, and 1"
        require(2.0**-25 <= decay * lr < 1, key, decay, f"{cure}; use another one, or the mode l2")
