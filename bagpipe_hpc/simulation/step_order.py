"""When gradients are complete within a trainer's compute, and leave for the other trainers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import layers_tell, updates_by_layers
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.sums.gradient_groups import groups_at_once
from bagpipe_hpc.models.sums.gradient_order import GradientOrder, gradient_order
from bagpipe_hpc.simulation.cluster import Cluster

_FORWARD, _BACKWARD = 1 / 3, 2 / 3
"""Shares of the passes in the time that a weight takes in a step: one and two of three products (docs/simulate.md)."""


class DenseSum(NamedTuple):
    """Dense gradients that are summed as one.

    Attributes:
        weights: their number.
        behind: share of compute that is left when they are complete.
    """

    weights: int
    behind: float


@dataclass(frozen=True)
class StepOrder:
    """When gradients leave within a step's compute, and when the next step waits for their sums.

    Attributes:
        behind_rows: share of compute that is left when the gradients of rows leave.
        sums: the sums of dense gradients, in their order.
        before_rows: share of compute before the first row is read.
        waits: for each sum, the share of the next step's compute before the wait for it; empty where the step itself
            waits for all of them at its end.
        is_late: whether gradients of weights come after those of rows, which may be updated in between.
    """

    behind_rows: float = 0.0
    sums: tuple[DenseSum, ...] = ()
    before_rows: float = 0.0
    waits: tuple[float, ...] = ()
    is_late: bool = False

    @classmethod
    def of(cls, order: GradientOrder) -> "StepOrder":
        """Give each weight the same share of compute; its gradient is complete when its backward pass ends."""
        share = _BACKWARD / max(1, order.weights)
        sums = (DenseSum(size, share * behind) for size, behind in zip(order.groups, order.behind_groups, strict=True))
        before_rows = _FORWARD / max(1, order.weights) * order.before_rows
        return cls(share * order.behind_rows, tuple(sums), before_rows)

    def late(self, *, can_wait: bool, late_share: float = 1.0) -> "StepOrder":
        """The same with gradients of weights last, starting with the weights that the next step reads first.

        Args:
            can_wait: whether the next step waits for each sum when it reads the weights.
            late_share: share of the weights whose gradients come late, 0 for none; the others come as before
                (`groups_at_once`).
        """
        share = _FORWARD / max(1, self.dense_weights)  # of compute, for each of a weight's three products
        count = groups_at_once([dense.weights for dense in self.sums], late_share)
        late = self.sums[count:]
        left = share * sum(dense.weights for dense in late)
        read = list(accumulate((dense.weights for dense in reversed(self.sums)), initial=0))[-2::-1]
        waits = [share * before for before in (*read[:count], *reversed(read[count:]))]
        sums = list(self.sums[:count])
        # After the gradients of rows come all products of layers below the rows, and the last one of late layers above.
        behind_rows = self.behind_rows / 2 + max(left, self.behind_rows / 2)
        for dense in reversed(late):
            left -= share * dense.weights
            sums.append(DenseSum(dense.weights, left))
        return replace(
            self,
            behind_rows=behind_rows,
            sums=tuple(sums),
            waits=tuple(waits) if can_wait else (),
            is_late=bool(late),
        )

    @property
    def dense_weights(self) -> int:
        """Number of weights whose gradients are summed."""
        return sum(dense.weights for dense in self.sums)

    def measured(self, moments: Sequence[float]) -> "StepOrder":
        """The same with measured moments.

        Args:
            moments: shares of compute that are left after the gradients of rows, and after those of each sum.

        Raises:
            ConfigError: their number is wrong, or they are not shares.
        """
        if len(moments) != 1 + len(self.sums) or not all(0 <= moment < 1 for moment in moments):
            raise ConfigError(
                f"--moments {' '.join(map(str, moments))}: needs {1 + len(self.sums)} shares from 0 to less than 1, of "
                f"what is left behind gradients of rows and behind each of the {len(self.sums)} sums of dense gradients"
            )
        sums = (dense._replace(behind=moment) for dense, moment in zip(self.sums, moments[1:], strict=True))
        return replace(self, behind_rows=moments[0], sums=tuple(sums))

    def moments(self) -> Iterator[tuple[float, int | None]]:
        """What leaves, in order: the share of compute that is left, and the number of the sum; None for rows.

        Where sums and rows leave at the same moment, sums come first: gradients of layers above the embeddings are
        complete before those of rows.
        """
        found = [*((dense.behind, number) for number, dense in enumerate(self.sums)), (self.behind_rows, None)]
        yield from sorted(found, key=lambda moment: -moment[0])


@dataclass(frozen=True)
class StepOrders:
    """The orders of one model, for each way to sum its dense gradients.

    Attributes:
        by_horovod: for Horovod, whose sums come one after the other.
        by_messages: for sums by messages, which pass side by side.
    """

    by_horovod: StepOrder
    by_messages: StepOrder

    @classmethod
    def of(cls, config: Config, facts: ModelFacts) -> "StepOrders":
        """Find them for a run's model; errors as for `gradient_order`."""
        return cls(*(cls._one(config, facts, side_by_side=way) for way in (False, True)))

    @staticmethod
    def _one(config: Config, facts: ModelFacts, *, side_by_side: bool) -> StepOrder:
        order = StepOrder.of(gradient_order(config.model, facts, side_by_side=side_by_side))
        late_share = config.train.share_of_late_weights
        tells = config.train.device != "cuda" and layers_tell(config.model)
        if not (tells and (side_by_side or late_share)):  # as `layer_weights_of`
            return order
        return order.late(can_wait=updates_by_layers(config), late_share=late_share)

    def on(self, cluster: Cluster) -> StepOrder:
        """The order that applies on a cluster."""
        return self.by_messages if cluster.dense_levels else self.by_horovod
