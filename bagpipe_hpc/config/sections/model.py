"""What is trained: the model, from embedding rows to logits."""

from dataclasses import dataclass, field
from typing import Any

from bagpipe_hpc.config.checks import require, require_one_of
from bagpipe_hpc.config.doors import DOOR, MODELS, fill_settings
from bagpipe_hpc.config.float32 import require_positive
from bagpipe_hpc.config.models import MOST_WIDTH, WIDTHS

PRECISIONS = ("float32", "bfloat16")


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
        require(1 <= self.embedding_dim <= MOST_WIDTH, "model.embedding_dim", self.embedding_dim, f"use {WIDTHS}")
        widths = self.embedding_dim_of
        is_width = all(type(width) is int and 1 <= width <= MOST_WIDTH for width in widths.values())
        require(is_width, "model.embedding_dim_of", widths, f"use {WIDTHS} for each table")
        bound = getattr(self.settings, "initial_bound", 0.0)
        require(type(bound) in (int, float), "model.initial_bound", bound, "its Settings must say a number")
        if bound:
            require_positive("model.initial_bound", bound, "0 for 1/sqrt(rows of the table), or ")
        require_one_of("model.precision", self.precision, PRECISIONS)
