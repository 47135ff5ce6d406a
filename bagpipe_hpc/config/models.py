"""The settings of the models that come with the package. Standard library only.

Hidden widths of an MLP are a list; the model adds the layer of the outputs, which follows them. Where weights of rows
are terms of the logit, `initial_bound` is the bound of their first values (`Config.initial_bound`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bagpipe_hpc.config.doors import SettingError

MOST_WIDTH = (1 << 31) - 1
"""Columns of a layer or a row: MPI and BLAS libraries count them with C ints."""
WIDTHS = f"a width of 1 to {MOST_WIDTH}"
STRUCTURES = ("stacked", "parallel")
_MOST_CROSS_LAYERS = 100


def _require_widths(name: str, mlp: Sequence[int], fewest: int = 0) -> None:
    """Refuse hidden widths that no layer can have, or too few of them."""
    if not all(1 <= width <= MOST_WIDTH for width in mlp):
        raise SettingError(name, list(mlp), f"every layer needs {WIDTHS}")
    if len(mlp) < fewest:
        raise SettingError(name, list(mlp), f"use {fewest} layer or more")


def _require_layers(name: str, layers: int) -> None:
    if not 1 <= layers <= _MOST_CROSS_LAYERS:
        raise SettingError(name, layers, f"use 1 to {_MOST_CROSS_LAYERS} layers")


def _require_rank(rank: int) -> None:
    if not 0 <= rank <= MOST_WIDTH:
        raise SettingError("cross_rank", rank, f"use {WIDTHS}, or 0 for whole matrices")


@dataclass(frozen=True)
class DLRMSettings:
    """DLRM (Naumov et al. 2019): two MLPs, and the dot products of all pairs of vectors between them."""

    bottom_mlp: tuple[int, ...] = (512, 256, 64)
    """Hidden widths of the MLP over the dense features; a last layer of width `embedding_dim` is added."""
    top_mlp: tuple[int, ...] = (512, 256)
    """Hidden widths of the MLP over the interactions; a last layer with a logit for each label is added."""

    def __post_init__(self) -> None:
        _require_widths("bottom_mlp", self.bottom_mlp)
        _require_widths("top_mlp", self.top_mlp)


@dataclass(frozen=True)
class WideDeepSettings:
    """Wide & Deep (Cheng et al. 2016): a logistic regression beside an MLP."""

    initial_bound: ClassVar[float] = 0.001

    deep_mlp: tuple[int, ...] = (1024, 512, 256)
    """Hidden widths of the MLP."""

    def __post_init__(self) -> None:
        _require_widths("deep_mlp", self.deep_mlp)


@dataclass(frozen=True)
class DeepFMSettings:
    """DeepFM (Guo et al. 2017): a factorization machine beside an MLP that reads the same factors."""

    initial_bound: ClassVar[float] = 0.001

    deep_mlp: tuple[int, ...] = (400, 400, 400)
    """Hidden widths of the MLP."""

    def __post_init__(self) -> None:
        _require_widths("deep_mlp", self.deep_mlp)


@dataclass(frozen=True)
class DCNSettings:
    """Deep & Cross (Wang et al. 2017): a cross network beside an MLP."""

    cross_layers: int = 6
    """Layers of the cross network."""
    deep_mlp: tuple[int, ...] = (1024, 1024)
    """Hidden widths of the MLP."""

    def __post_init__(self) -> None:
        _require_layers("cross_layers", self.cross_layers)
        _require_widths("deep_mlp", self.deep_mlp, fewest=1)


@dataclass(frozen=True)
class DCNv2Settings:
    """DCN v2 (Wang et al. 2021): a cross network with matrices, before an MLP or beside it."""

    cross_layers: int = 3
    """Layers of the cross network."""
    cross_rank: int = 0
    """Rank of its matrices, each of which is then a product of two; 0 for whole matrices. A rank below half of the
    number of inputs saves work."""
    structure: str = "stacked"
    """`stacked`: the MLP reads what the cross network gives; `parallel`: both read the inputs."""
    deep_mlp: tuple[int, ...] = (768, 768)
    """Hidden widths of the MLP."""

    def __post_init__(self) -> None:
        _require_layers("cross_layers", self.cross_layers)
        _require_rank(self.cross_rank)
        if self.structure not in STRUCTURES:
            raise SettingError("structure", self.structure, f"use one of {', '.join(STRUCTURES)}")
        _require_widths("deep_mlp", self.deep_mlp, fewest=1 if self.structure == "parallel" else 0)


@dataclass(frozen=True)
class DLRMDCNv2Settings:
    """DLRM-DCNv2 (MLPerf training, since v3.0): DLRM with the low-rank cross network of DCN v2 between its MLPs.

    The defaults are MLPerf's, which takes 128 for `embedding_dim`.
    """

    bottom_mlp: tuple[int, ...] = (512, 256)
    """Hidden widths of the MLP over the dense features; a last layer of width `embedding_dim` is added."""
    cross_layers: int = 3
    """Layers of the cross network."""
    cross_rank: int = 512
    """Rank of its matrices, each of which is then a product of two; 0 for whole matrices. A rank below half of the
    number of inputs saves work."""
    top_mlp: tuple[int, ...] = (1024, 1024, 512, 256)
    """Hidden widths of the MLP over what the cross network gives; a last layer with a logit for each label is added."""

    def __post_init__(self) -> None:
        _require_widths("bottom_mlp", self.bottom_mlp)
        _require_layers("cross_layers", self.cross_layers)
        _require_rank(self.cross_rank)
        _require_widths("top_mlp", self.top_mlp)


@dataclass(frozen=True)
class DINSettings:
    """Deep Interest Network (Zhou et al. 2018): attention of a target over the rows of a history."""

    attention: dict[str, Any] = field(default_factory=dict)
    """The target of each sequence, a pooled feature: `{ history = "item" }`. Every sequence needs one; several may have
    the same."""
    attention_mlp: tuple[int, ...] = (36,)
    """Hidden widths of the MLP that weighs a row of a history."""
    deep_mlp: tuple[int, ...] = (200, 80)
    """Hidden widths of the MLP over the vectors of histories, the pooled features and the dense features."""

    def __post_init__(self) -> None:
        if not all(isinstance(target, str) for target in self.attention.values()):
            raise SettingError("attention", self.attention, 'give each sequence a feature, as { history = "item" }')
        _require_widths("attention_mlp", self.attention_mlp)
        _require_widths("deep_mlp", self.deep_mlp)


@dataclass(frozen=True)
class GraphSAGESettings:
    """GraphSAGE (Hamilton et al. 2017): a node's vector from its own row and the means of its neighbours'."""

    hidden: int = 256
    """Width of a node's vector after each layer; there are as many layers as hops in `graph.fan_outs`."""

    def __post_init__(self) -> None:
        _require_widths("hidden", [self.hidden])
