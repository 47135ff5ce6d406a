"""Rows on one hop: all that a trainer sends to and takes in from the trainers of one communicator, by one call."""

from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.transfer import TESTS_A_WAKE
from bagpipe_hpc.plan.exchange import Counts


class Hop:
    """Rows that are on their way between the trainers of a communicator, all in one `MPI_Ialltoallv`.

    Collective over: the communicator, in one order. Rows of one trainer lie behind those of the one before it.

    Args:
        comm: of the trainers.
        rows: what is sent, `[N, W]`, left alone until the hop is over.
        to: how many each of them gets.
        into: takes rows in, `[M, W]`.
        source: how many are of each.
        stays: a trainer, this one, whose rows stay where they are, at both ends; None if there is none.

    Attributes:
        into: as given.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        rows: NDArray[Any],
        to: Counts,
        into: NDArray[Any],
        source: Counts,
        stays: int | None = None,
    ) -> None:
        self.into = into
        self._rows = rows
        width = rows.shape[1]
        self._request = comm.Ialltoallv((rows, _layout(to, width, stays)), (into, _layout(source, width, stays)))
        self._is_over = False

    def is_over(self) -> bool:
        """Whether all rows have come, and this trainer's have left: tested several times over, but never waited for.

        One thread at a time may ask (MPI 4.1, section 11.6.2).
        """
        self._is_over = self._is_over or any(self._request.Test() for _ in range(TESTS_A_WAKE))
        return self._is_over


def _layout(counts: Counts, width: int, stays: int | None) -> tuple[Counts, Counts]:
    """How many numbers are each trainer's, and where they begin."""
    numbers = counts * width
    starts: Counts = numbers.cumsum() - numbers
    if stays is not None:
        numbers[stays] = 0
    return numbers, starts
