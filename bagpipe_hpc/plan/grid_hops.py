"""Where rows lie on their first hop over a grid, and how a trainer passes them on. In NumPy, the definition.

A trainer takes in what its row has for its column, one sender's rows behind the other's, puts them into the order of
their receivers, and passes them on: to one receiver after the other, as soon as this one's are in order.

Legend: `R` x `C` trainers in rows and columns, `W` numbers of a row.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.exchange import Counts, Flow, pieces


class Layout(NamedTuple):
    """Where what a call sends to, or takes of, each trainer lies; lists, which mpi4py takes faster than arrays.

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


class FirstHop(NamedTuple):
    """Where rows lie on the first hop.

    Attributes:
        to_columns: what is sent, for each trainer of the row: all that is for its column.
        of_senders: what is taken in, of each of them.
    """

    to_columns: Layout
    of_senders: Layout


class MessagesByAddress(NamedTuple):
    """How native code begins messages within a column, by MPI's functions. Handles are MPI's, as whole numbers.

    Attributes:
        isend: address of `MPI_Isend`.
        irecv: address of `MPI_Irecv`.
        handle_bytes: of a handle, 4 or 8.
        comm: handle of a communicator.
        byte: handle of `MPI_BYTE`.
        tag: of the messages.
        ranks: of the trainers of the column in the communicator, int32 `[R]`.
    """

    isend: int
    irecv: int
    handle_bytes: int
    comm: int
    byte: int
    tag: int
    ranks: NDArray[np.int32]


class Column(Protocol):
    """Messages between a trainer and the others of its column, on the second hop of some rows.

    Attributes:
        by_address: how native code begins them; None where that cannot be.
    """

    by_address: MessagesByAddress | None

    def take(self, row: int, rows: NDArray[Any]) -> None:
        """Start to take in what the trainer in a row of the grid passes on."""

    def send(self, row: int, rows: NDArray[Any]) -> None:
        """Start to send rows, which are left alone until they have gone, to the trainer in a row of the grid."""

    def began(self, handles: NDArray[np.int64], failure: int) -> None:
        """Learn of messages that native code has begun.

        Args:
            handles: of their requests.
            failure: what MPI says of the one behind them; 0 where all have begun.
        """


class GridHops(Protocol):
    """What a trainer does for an exchange over a grid besides the first hop. All implementations do the same."""

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> FirstHop:
        """Where rows lie.

        Args:
            flow: over a grid.
            place: row and column of this trainer.
            width: numbers of a row.

        Raises:
            ValueError: the numbers of rows contradict each other.
        """

    def pass_on(
        self,
        flow: Flow,
        place: tuple[int, int],
        taken: NDArray[Any],
        passed: NDArray[Any],
        into: NDArray[Any],
        column: Column,
    ) -> None:
        """Put rows into the order of their receivers, send each one's as soon as they are, and take the others' in.

        What is for one receiver is under way while what is for the next one is put in order. The first receiver stands
        in the row behind this one, so that a column's trainers do not all send to the same one first. Nobody gets or
        awaits a message of no rows.

        Args:
            flow: as for `lay_out`, which has found that it contradicts itself nowhere.
            place: as there.
            taken: what has come on the first hop, `[sum of relayed, W]`.
            passed: gets what is passed on, `passed_rows` rows.
            into: gets what is for this trainer, `[sum of source, W]`; the place of its own rows is left as it is.
            column: carries what is passed on.
        """


def passed_rows(flow: Flow, place: tuple[int, int]) -> int:
    """How many rows a trainer passes on to others."""
    return int(flow.relayed.sum() - flow.relayed[:, place[0]].sum())


class NumpyGridHops:
    """`GridHops` with NumPy, where the methods are described."""

    def lay_out(self, flow: Flow, place: tuple[int, int], width: int) -> FirstHop:
        """Two sums of counts, and a layout of each."""
        row, column = place
        source, relayed = flow.source.reshape(flow.grid), flow.relayed
        for_this = source[row].copy()
        for_this[column] = 0
        if min(flow.to.min(), source.min(), relayed.min()) < 0 or not np.array_equal(relayed[:, row], for_this):
            raise ValueError(contradiction(flow, place))
        to_columns = Layout.of(flow.to.reshape(flow.grid).sum(0), width)
        return FirstHop(to_columns, Layout.of(relayed.sum(1), width))

    def pass_on(
        self,
        flow: Flow,
        place: tuple[int, int],
        taken: NDArray[Any],
        passed: NDArray[Any],
        into: NDArray[Any],
        column: Column,
    ) -> None:
        """Piece by piece: what one sender has for one receiver."""
        rows, columns = flow.grid
        row, own = place
        for other, piece in enumerate(pieces(flow.source.reshape(flow.grid).sum(1))):
            if other != row and len(into[piece]):
                column.take(other, into[piece])
        parts = [taken[piece] for piece in pieces(flow.relayed)]
        end = 0
        for other in ((row + step) % rows for step in range(1, rows)):
            start, end = end, end + int(flow.relayed[:, other].sum())
            if end > start:
                np.concatenate(parts[other::rows], out=passed[start:end])
                column.send(other, passed[start:end])
        of_row = pieces(flow.source)[row * columns : (row + 1) * columns]
        for sender, (piece, part) in enumerate(zip(of_row, parts[row::rows], strict=True)):
            if sender != own:
                into[piece] = part


def contradiction(flow: Flow, place: tuple[int, int]) -> str:
    """What is wrong with numbers of rows that contradict each other."""
    row, _ = place
    expected, relayed = flow.source.reshape(flow.grid)[row], flow.relayed[:, row]
    return (
        f"trainer at {place} of a grid of {flow.grid}: it expects {expected.tolist()} rows of its row, its own among "
        f"them, and gets {relayed.tolist()}; or a number is negative"
    )
