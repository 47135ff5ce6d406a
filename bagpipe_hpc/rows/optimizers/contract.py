"""The contract of row optimizers: what each keeps for a row, and how a step changes it.

Importing this takes no torch: oracle and servers ask an optimizer for its state alone.

Legend: `N` rows of one call, `D` embedding width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bagpipe_hpc.config.rates import RateConfig, RowsRateConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StateColumns:
    """Float32 numbers that an optimizer keeps for a row. They are stored, moved and saved with its weights.

    Attributes:
        name: what they are.
        per_weight: one for each weight of the row, or one for the whole row.
        first: what they are before the row's first update.
    """

    name: str
    per_weight: bool
    first: float = 0.0

    def width(self, embedding_dim: int) -> int:
        """How many numbers these are for a row of `embedding_dim` weights."""
        return embedding_dim if self.per_weight else 1

    @property
    def layout(self) -> str:
        """What rows of two runs must share, in words: the name, and how many there are."""
        return f"{self.name} (one a {'weight' if self.per_weight else 'row'})"


class KernelCall(NamedTuple):
    """Native code that does what a formula does, to the same bits.

    Attributes:
        name: of the kernel, a key of `kernels.rows.update_kernels.UPDATE_KERNELS`.
        numbers: its arguments, each rounded to float32.
    """

    name: str
    numbers: tuple[float, ...]


class RowOptimizer(ABC):
    """Updates embedding rows from the sum of their gradients over the global batch.

    Every trainer and the one-rank run make one, oracle and servers too: they ask for `state`. It keeps nothing between
    steps but its settings: what it must remember of a row is in the row's state, which travels with it.

    A row's new numbers may depend on its own old numbers, its gradient and the step alone, to the last bit, wherever it
    stands in the batch: a distributed run updates it among other rows than the reference. So round each operation by
    itself: `a.add_(b * c)`, not `addcmul_`, `lerp_` or `add_(b, alpha=c)`, which torch rounds once in some places and
    twice in others. Sum over columns and take roots with `bagpipe_hpc.rows.optimizers.exact`. Trainers check this
    before a run starts.

    Args:
        settings: an instance of `Settings`, or of `NoSettings` where the class has none.

    Attributes:
        settings: as given.
        rates: the learning rate over the steps of the run; `build_row_optimizer` sets it.
        state: what is kept for a row, in the order in which it follows the weights; a property where it depends on
            settings.
        makes_weights_of_state: `update` computes weights from the state, so that a change of the weights alone would be
            lost: decoupled decay is refused then.
        Settings: a frozen dataclass of hyperparameters, with a default each; left out where there are none.
    """

    Settings: ClassVar[type[Any]]
    state: tuple[StateColumns, ...] = ()
    rates: RateConfig = RowsRateConfig()
    makes_weights_of_state: ClassVar[bool] = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """Change copies of distinct rows in place; trainers put them back into their cache.

        A trainer calls it once or several times a step, with the rows whose sums are complete. The tensors are float32,
        contiguous and on the trainer's device. `N` is 1 or more.

        Args:
            weights: `[N, D]`, changed in place.
            state: a tensor for each of `self.state`, `[N, D]` or `[N, 1]`, changed in place.
            gradients: of the global-batch mean loss, summed over all look-ups of a row, `[N, D]`; read only.
            step: number of the training step that the gradients come from, from 1; the same for all rows.
        """

    def rate(self, step: int) -> float:
        """The learning rate of a step: `settings.lr` times the factor that `[rows_rate]` has for it.

        Formulas and kernels take it from here. Where `[rows_rate]` is set, trainers refuse a class that does not follow
        it. A class without a setting `lr` asks `self.rates.factor(step)`.
        """
        rate: float = self.settings.lr * self.rates.factor(step)
        return rate

    def kernel(self, step: int) -> KernelCall | None:  # noqa: ARG002
        """What does the same as `update` in native code, at a step; None where there is nothing."""
        return None
