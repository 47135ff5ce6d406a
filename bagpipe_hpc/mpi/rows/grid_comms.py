"""The communicators on which trainers exchange rows of one kind."""

from typing import NamedTuple

from mpi4py import MPI

from bagpipe_hpc.plan.exchange_grid import Grid


class GridComms(NamedTuple):
    """Those of one trainer and kind of rows.

    Attributes:
        row: of the trainers of its row of the grid; of all trainers where rows travel directly.
        column: of those of its column.
    """

    row: MPI.Comm
    column: MPI.Comm

    @classmethod
    def split(cls, trainers: MPI.Comm, grid: Grid) -> "GridComms":
        """Put the trainers into a grid. Collective over: `trainers`, in the order of their numbers."""
        row, column = grid.place(trainers.Get_rank())
        return cls(trainers.Split(row, column), trainers.Split(column, row))

    @property
    def grid(self) -> Grid:
        """Of the trainers."""
        return Grid(self.column.Get_size(), self.row.Get_size())

    @property
    def place(self) -> tuple[int, int]:
        """Row and column of this trainer."""
        return self.column.Get_rank(), self.row.Get_rank()

    def free(self) -> None:
        """Give them back. Collective over: the trainers."""
        self.column.Free()
        self.row.Free()
