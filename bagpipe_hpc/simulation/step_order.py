"""When in a trainer's compute what others wait for is complete, and leaves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bagpipe_hpc.models.gradient_order import GradientOrder

_BACKWARD = 2 / 3
"""Of the time that a weight takes in a step, its backward pass: two of three products (docs/simulate.md)."""


class DenseSum(NamedTuple):
    """Dense gradients that are summed as one.

    Attributes:
        weights: their number.
        behind: share of compute that comes when they are complete.
    """

    weights: int
    behind: float


@dataclass(frozen=True)
class StepOrder:
    """What leaves before compute ends.

    Attributes:
        behind_rows: share of compute that comes when the gradients of rows have left.
        sums: of dense gradients, in their order.
    """

    behind_rows: float = 0.0
    sums: tuple[DenseSum, ...] = ()

    @classmethod
    def of(cls, order: GradientOrder) -> "StepOrder":
        """Give each weight the same share of compute, of which its backward pass is the end."""
        share = _BACKWARD / max(1, order.weights)
        sums = (DenseSum(size, share * behind) for size, behind in zip(order.groups, order.behind_groups, strict=True))
        return cls(share * order.behind_rows, tuple(sums))

    @property
    def dense_weights(self) -> int:
        """Number of weights whose gradients are summed."""
        return sum(dense.weights for dense in self.sums)

    def moments(self) -> Iterator[tuple[float, int | None]]:
        """What leaves, as it comes: the share of compute behind it, and the number of the sum; None for rows.

        Of what leaves at the same moment sums come first: gradients of layers above the embeddings are complete before
        those of rows.
        """
        found = [*((dense.behind, number) for number, dense in enumerate(self.sums)), (self.behind_rows, None)]
        yield from sorted(found, key=lambda moment: -moment[0])
