"""The settings of the models that come with the package. Standard library only.

Hidden widths of an MLP are a list; what follows them, the layer of the outputs, is added by the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

MOST_WIDTH = (1 << 31) - 1
"""Columns of a layer or a row: MPI and BLAS libraries count them with C ints."""
WIDTHS = f"a width of 1 to {MOST_WIDTH}"


def _require_widths(name: str, mlp: Sequence[int], fewest: int = 0) -> None:
    """Refuse hidden widths that no layer can have, or too few of them."""
    if not all(1 <= width <= MOST_WIDTH for width in mlp):
        raise SettingError(name, list(mlp), f"every layer needs {WIDTHS}")
    if len(mlp) < fewest:
        raise SettingError(name, list(mlp), f"use {fewest} layer or more")


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
