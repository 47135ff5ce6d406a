"""The workload of benchmark `cache`: row operations on many rows, as a batch of the large workload asks for them.

Legend: `R` rows of the cache, `U` distinct rows and `M` look-ups of a batch, `N` rows of a call, `D` embedding width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_memory import new_table
from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.kernels.rows.row_operations import RowOperations
from bagpipe_hpc.kernels.rows.sum_order import SumOrder
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from benchmarks.kaggle.rows import draw_batches

SAMPLES = 16384
ZIPF = 1.05
_MOST_ROWS = 2_000_000
_STEP = 1000
"""Of the training step that updates are of: Adam's corrections depend on it."""


@dataclass(frozen=True)
class Operation:
    """One call.

    Attributes:
        name: what it does.
        size: `batch`, the distinct rows of a batch, or `large`, half of the cache.
        rows: rows or look-ups N.
        moved_bytes: what it has to read and write at least: every number once, slots and positions too.
        run: carries it out with given operations.
    """

    name: str
    size: str
    rows: int
    moved_bytes: int
    run: Callable[[RowOperations], object]


class CacheWorkload:
    """A cache, gradients and the slots of a batch, on one device.

    Args:
        width: D.
        table_bytes: memory of the weights; the two moments of Adam take as much each.
        device: where it is.
    """

    def __init__(self, width: int, table_bytes: int, device: torch.device) -> None:
        self.cache_rows = min(_MOST_ROWS, table_bytes // (4 * width))
        (batch,) = draw_batches(1, SAMPLES, ZIPF, seed=1)
        unique, positions = np.unique(batch, return_inverse=True)
        shuffle = np.random.default_rng(2).permutation
        self._width = width
        self._device = device
        self._batch_rows = unique.size
        # A plan numbers a batch's rows in an order that has nothing to do with their ids.
        self._positions = self._indices(shuffle(unique.size)[positions.reshape(-1)])
        self._slots = self._indices(shuffle(self.cache_rows))
        self._tables = [new_table(self.cache_rows, columns, device).fill_(0.5) for columns in (width, width, width)]
        self._accumulator = new_table(self.cache_rows, 1, device).fill_(0.5)
        self._gradients = new_table(max(self._positions.numel(), self.cache_rows // 2), width, device).fill_(0.01)

    def _indices(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers.astype(np.int32)).to(self._device)

    def operations(self) -> list[Operation]:
        """All calls, in the order of a step."""
        sizes = {"batch": self._batch_rows, "large": self.cache_rows // 2}
        found = [self._look_up(), self._sum(), self._sum_in_known_order()]
        for size, rows in sizes.items():
            found += [*self._record_moves(size, rows), *self._updates(size, rows)]
        return found

    def _look_up(self) -> Operation:
        weights, slots = self._tables[0], self._slots[: self._batch_rows]
        look_ups = self._positions.numel()
        moved = 4 * (look_ups + self._batch_rows) * (self._width + 1)
        return Operation(
            "look_up", "batch", look_ups, moved, lambda with_: with_.gather_look_ups(weights, slots, self._positions)
        )

    def _sum(self) -> Operation:
        look_ups = self._positions.numel()
        gradients = self._gradients[:look_ups]
        moved = 4 * (look_ups * (self._width + 1) + self._batch_rows * self._width)
        return Operation(
            "sum",
            "batch",
            look_ups,
            moved,
            lambda with_: with_.sum_by_position(gradients, self._positions, self._batch_rows),
        )

    def _sum_in_known_order(self) -> Operation:
        """As in a step: the mover has put the look-ups in order where the sums need that."""
        look_ups, rows = self._positions.numel(), self._batch_rows
        gradients, orders = self._gradients[:look_ups], dict[RowOperations, SumOrder | None]()

        def work(with_: RowOperations) -> Tensor:
            if with_ not in orders:  # at the first call, which does not count
                orders[with_] = with_.order_look_ups(self._positions, rows)
            return with_.sum_by_position(gradients, self._positions, rows, orders[with_])

        moved = 4 * (look_ups * (self._width + 1) + rows * self._width)
        return Operation("sum, order known", "batch", look_ups, moved, work)

    def _record_moves(self, size: str, rows: int) -> list[Operation]:
        """Weights alone, as with SGD, and with row-wise Adagrad's accumulator."""
        weights, slots = self._tables[0], self._slots[:rows]
        found = []
        for name, columns in (("rows", [weights]), ("records", [weights, self._accumulator])):
            width = sum(part.shape[1] for part in columns)
            moved = 4 * rows * (2 * width + 1)
            values = new_table(rows, width, self._device).fill_(0.25)
            found += [
                Operation(f"gather {name}", size, rows, moved, _gather(columns, slots)),
                Operation(f"scatter {name}", size, rows, moved, _scatter(columns, slots, values)),
            ]
        return found

    def _updates(self, size: str, rows: int) -> list[Operation]:
        """Each reads the gradients once, and reads and writes weights and state once."""
        (weights, *moments), accumulator = self._tables, self._accumulator
        slots, gradients = self._slots[:rows], self._gradients[:rows]

        def update(name: str) -> Operation:
            optimizer = build_row_optimizer(OptimizerConfig(rows=name))
            per_weight = iter(moments)
            state = [next(per_weight) if part.per_weight else accumulator for part in optimizer.state]
            moved = 4 * rows * (3 * self._width + 2 * sum(part.shape[1] for part in state) + 1)
            return Operation(
                name,
                size,
                rows,
                moved,
                lambda with_: update_rows(with_, optimizer, weights, state, slots, gradients, _STEP),
            )

        return [update(name) for name in ROW_OPTIMIZERS.entries]


def _gather(columns: list[Tensor], slots: Tensor) -> Callable[[RowOperations], object]:
    return lambda with_: with_.gather_records(columns, slots)


def _scatter(columns: list[Tensor], slots: Tensor, values: Tensor) -> Callable[[RowOperations], object]:
    return lambda with_: with_.scatter_records(columns, slots, values)
