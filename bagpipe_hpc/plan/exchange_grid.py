"""Over which trainers rows travel from one trainer to another: directly, or over a grid in two hops.

A trainer has rows for most others in every batch, so their number is that of its messages. In a grid of `rows` x
`columns` trainers, numbered row after row, rows for a trainer first travel within the sender's row, to the trainer in
the receiver's column, which passes them on within that column: a trainer sends rows + columns - 2 messages in place of
T - 1. Directly is over the grid of one row.
"""

from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.sections.rows import EXCHANGES

AUTO, DIRECT, OVER_GRID = EXCHANGES

GRID_FROM_TRAINERS = 128
"""From so many trainers on `auto` takes the grid. With 64 either way is predicted to take the same within 1 %, and with
128 a step over the grid is 14 % shorter (docs/simulate.md)."""
_LEAST_SAVING = 4
"""So many times fewer messages it must be then: one over a grid takes twice as long, and rows are copied on the way."""


class Grid(NamedTuple):
    """Trainers in rows and columns: trainer t stands in row t // columns, column t % columns."""

    rows: int
    columns: int

    @classmethod
    def direct(cls, trainers: int) -> "Grid":
        """Every trainer sends to every other."""
        return cls(1, trainers)

    @classmethod
    def balanced(cls, trainers: int) -> "Grid":
        """The one with the fewest messages: of a prime number of trainers, one row."""
        rows = next(rows for rows in range(isqrt(trainers), 0, -1) if trainers % rows == 0)
        return cls(rows, trainers // rows)

    @property
    def trainers(self) -> int:
        """Number of trainers T."""
        return self.rows * self.columns

    @property
    def is_direct(self) -> bool:
        """Whether nobody passes anything on."""
        return self.rows == 1

    @property
    def messages(self) -> int:
        """The most that a trainer sends of one kind: to the others of its row, and to those of its column."""
        return self.rows + self.columns - 2

    def place(self, trainer: int) -> tuple[int, int]:
        """Row and column of a trainer."""
        return divmod(trainer, self.columns)

    @property
    def sending_places(self) -> NDArray[np.intp]:
        """By trainer, where a sender's rows for it lie among those for all, `[T]`: column after column."""
        return np.arange(self.trainers).reshape(self.columns, self.rows).T.ravel()


@dataclass(frozen=True)
class GridChoice:
    """Over which grid all trainers exchange rows.

    Attributes:
        grid: the grid.
        reason: for the reader.
    """

    grid: Grid
    reason: str

    def __str__(self) -> str:
        way = "directly" if self.grid.is_direct else f"over a grid of {self.grid.rows} x {self.grid.columns}"
        return f"rows between trainers: {way} ({self.reason})"


def choose_grid(setting: str, trainers: int) -> GridChoice:
    """Choose for all trainers.

    A small message costs a trainer some 5 us, and a hop over a grid 20 us more; two hops carry all rows twice. So
    `auto` takes the grid where it saves many messages, which are small then (docs/simulate.md has the figures).

    Args:
        setting: `cache.exchange`.
        trainers: number T.
    """
    grid, told = Grid.balanced(trainers), f"cache.exchange = {setting}"
    direct, saved = Grid.direct(trainers), f"{grid.messages} messages of a trainer in place of {trainers - 1}"
    if setting == DIRECT:
        return GridChoice(direct, told)
    if grid.is_direct:
        return GridChoice(direct, f"{told}: {trainers} trainers make no grid of several rows")
    if setting == AUTO and trainers < GRID_FROM_TRAINERS:
        return GridChoice(direct, f"{told}: fewer than {GRID_FROM_TRAINERS} trainers")
    if setting == AUTO and _LEAST_SAVING * grid.messages >= trainers - 1:
        return GridChoice(direct, f"{told}: a grid takes {saved}")
    return GridChoice(grid, f"{told}: {saved}")
