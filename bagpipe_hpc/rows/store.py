"""What answers to trainers need of the rows of a server, wherever these are."""

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

    Gathers, scatters and adds are iterators that yield wherever they would have to wait, so that one thread has many
    under way; nothing is done but by going through them to their end.

    Legend: `N` rows of one call, `W` float32 numbers of a record. Places are checked by who calls.
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
        """A trainer says which rows `[N]` its next uses of this kind are of, in their order; each will come once."""

    def begin(self, trainer: int, use: Use, count: int) -> None:
        """A trainer begins to get or put its next `count` rows."""

    def work(self) -> None:
        """Go on with what was announced, without waiting."""
