"""The settings of DLRM, the deep learning recommendation model. Standard library only."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

MOST_WIDTH = (1 << 31) - 1
"""Columns of a layer or a row: MPI and BLAS libraries count them with C ints."""
WIDTHS = f"a width of 1 to {MOST_WIDTH}"


@dataclass(frozen=True)
class DLRMSettings:
    """DLRM (Naumov et al. 2019): two MLPs, and the dot products of all pairs of vectors between them."""

    bottom_mlp: tuple[int, ...] = (512, 256, 64)
    """Hidden widths of the MLP over the dense features; a last layer of width `embedding_dim` is added."""
    top_mlp: tuple[int, ...] = (512, 256)
    """Hidden widths of the MLP over the interactions; a last layer of width 1 (the logit) is added."""

    def __post_init__(self) -> None:
        for name, mlp in (("bottom_mlp", self.bottom_mlp), ("top_mlp", self.top_mlp)):
            if not all(1 <= width <= MOST_WIDTH for width in mlp):
                raise SettingError(name, list(mlp), f"every layer needs {WIDTHS}")
