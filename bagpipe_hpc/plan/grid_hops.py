"""Where rows lie on their hops, and how a trainer of a grid passes them on between its two. In NumPy, the definition.

A trainer takes in what its row has for its column, one sender's rows behind the other's, puts them into the order of
their receivers, and passes them on.

Legend: `R` x `C` trainers in rows and columns, `W` numbers of a row.
"""

from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.exchange import Counts, Flow


class Layout(NamedTuple):
    """Where the rows for, or of, each trainer of a hop lie; lists, which mpi4py takes faster than arrays.

    Attributes:
        counts: how many numbers are each trainer's.
        starts: the first of them.
    """

    counts: list[int]
    starts: list[int]

    @classmethod
    def of(cls, rows: Counts, width: int, stays: int | None = None) -> "Layout":
        """One trainer's rows behind the other's.

        Args:
            rows: of each trainer.
            width: numbers of a row.
            stays: a trainer whose rows have a place, but do not travel; None if there is none.
        """
        numbers = rows * width
        starts = numbers.cumsum() - numbers
        if stays is not None:
            numbers[stays] = 0
        return cls(numbers.tolist(), starts.tolist())

    @property
    def numbers(self) -> int:
        """Of all trainers, where rows of the last one travel."""
        return self.starts[-1] + self.counts[-1]


class GridLayouts(NamedTuple):
    """The layouts of both hops.

    Attributes:
        to_columns: what is sent on the first hop, for each trainer of the row: all that is for its column.
        of_senders: what is taken in on the first hop, of each of them.
        to_rows: what is passed on, for each trainer of the column; nothing for this one.
        of_rows: what is taken in on the second hop: of each of them the rows of all in its row. Those of this one's row
            have their place, and do not travel.
    """

    to_columns: Layout
    of_senders: Layout
    to_rows: Layout
    of_rows: Layout


class GridHops(Protocol):
    """What a trainer does for an exchange over a grid besides calling MPI. All implementations do the same.

    Raises:
        ValueError: the numbers of rows contradict each other.
    """

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> GridLayouts:
        """Where rows lie.

        Args:
            flow: over a grid.
            place: row and column of this trainer.
            width: numbers of a row.
        """

    def pass_on(
        self, flow: Flow, place: tuple[int, int], taken: NDArray[Any], passed: NDArray[Any], into: NDArray[Any]
    ) -> None:
        """Put rows into the order of their receivers, and those for this trainer to where they belong.

        Args:
            flow: as for `lay_out`.
            place: as there.
            taken: what has come on the first hop, `[sum of relayed, W]`.
            passed: gets what is passed on, as many rows as `to_rows` has.
            into: gets what is for this trainer, `[sum of source, W]`; other rows are left as they are.
        """


class NumpyGridHops:
    """`GridHops` with NumPy, where the methods are described."""

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> GridLayouts:
        """Four sums of counts, and a layout of each."""
        row, column = place
        source, relayed = flow.source.reshape(flow.grid), flow.relayed
        for_this = source[row].copy()
        for_this[column] = 0
        if min(flow.to.min(), source.min(), relayed.min()) < 0 or not np.array_equal(relayed[:, row], for_this):
            raise ValueError(contradiction(flow, place))
        to_rows = relayed.sum(0)
        to_rows[row] = 0
        return GridLayouts(
            Layout.of(flow.to.reshape(flow.grid).sum(0), width),
            Layout.of(relayed.sum(1), width),
            Layout.of(to_rows, width),
            Layout.of(source.sum(1), width, stays=row),
        )

    def pass_on(
        self, flow: Flow, place: tuple[int, int], taken: NDArray[Any], passed: NDArray[Any], into: NDArray[Any]
    ) -> None:
        """Piece by piece: what one sender has for one receiver."""
        rows, columns = flow.grid
        row, column = place
        parts = [taken[piece] for piece in _pieces(flow.relayed)]
        by_receiver = [parts[sender * rows + receiver] for receiver in range(rows) for sender in range(columns)]
        own = slice(row * columns, (row + 1) * columns)
        for sender, (piece, part) in enumerate(zip(_pieces(flow.source)[own], by_receiver[own], strict=True)):
            if sender != column:
                into[piece] = part
        del by_receiver[own]
        np.concatenate([taken[:0], *by_receiver], out=passed)


def contradiction(flow: Flow, place: tuple[int, int]) -> str:
    """What is wrong with numbers of rows that contradict each other."""
    row, _ = place
    expected, relayed = flow.source.reshape(flow.grid)[row], flow.relayed[:, row]
    return (
        f"trainer at {place} of a grid of {flow.grid}: it expects {expected.tolist()} rows of its row, its own among "
        f"them, and gets {relayed.tolist()}; or a number is negative"
    )


def _pieces(counts: Counts) -> list[slice]:
    """Where parts lie, one behind the other."""
    ends = np.concatenate(([0], counts.cumsum())).tolist()
    return [slice(*ends) for ends in pairwise(ends)]
