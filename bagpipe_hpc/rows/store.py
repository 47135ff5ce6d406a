"""The interface to a server's rows, in memory or on disk, through which trainers' requests are answered."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.integer[Any]]
Records = NDArray[np.float32]


class Use(Enum):
    """What a trainer announces: rows that it will get, or rows that it will put."""

    GET = 0
    PUT = 1


class RowStore(Protocol):
    """The rows of one server at positions 0 .. rows - 1; used by the thread that answers trainers.

    Gathers, scatters and adds are iterators that yield wherever they would have to wait, so that one thread can have
    many under way; they do their work only as they are gone through to the end. The caller checks places.

    Legend: `N` rows of one call, `W` float32 numbers of a record.
    """

    @property
    def width(self) -> int:
        """Numbers W of a record."""

    def gather(self, places: Places, into: Records) -> Iterator[None]:
        """Copy the rows at `places [N]` to `into`, float32 `[N, W]`, C-contiguous."""

    def scatter(self, places: Places, records: Records) -> Iterator[None]:
        """Copy `records`, float32 `[N, W]`, C-contiguous, to distinct `places [N]`."""

    def add(self, places: Places, records: Records) -> Iterator[None]:
        """Add `records`, float32 `[N, W]`, to the rows at `places [N]`; one that comes several times gets each."""

    def announce(self, trainer: int, use: Use, places: Places) -> None:
        """A trainer says which rows it will get or put next, at `places [N]`, in their order; each will come once."""

    def begin(self, trainer: int, use: Use, count: int) -> None:
        """A trainer begins to get or put its next `count` rows."""

    def work(self) -> None:
        """Go on with what was announced, without waiting."""
