"""What trainers will get and put, as they have announced it: what to read ahead, and how long it has to stay. Pure.

Each trainer announces its rows of either use in the order in which they will come, so counting is enough to know which
announcements are over.
"""

from collections import deque
from dataclasses import dataclass

from bagpipe_hpc.rows.disk.block_file import Int64s
from bagpipe_hpc.rows.disk.residency import Residency
from bagpipe_hpc.rows.store import Use


@dataclass
class _Announced:
    """Rows that a trainer uses together.

    Attributes:
        blocks: the distinct blocks in which they lie, int64.
        last: number of rows that the trainer has announced for this use, up to and with these.
        read: how many of the blocks have been read ahead.
        is_over: whether the trainer has begun to use them.
    """

    blocks: Int64s
    last: int
    read: int = 0
    is_over: bool = False


@dataclass
class _Line:
    """Announcements of a trainer for one use, the earliest first; rows announced, and rows that it has begun to use."""

    waiting: deque[_Announced]
    announced: int = 0
    begun: int = 0


class Announcements:
    """Blocks that will be used, in the order in which they were announced.

    Args:
        residency: is told which blocks were read ahead and have yet to be used.
    """

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._lines: dict[tuple[int, Use], _Line] = {}
        self._unread: deque[_Announced] = deque()
        self.promised = 0
        """Blocks that were read ahead and are still to be used; one that is announced twice counts twice."""

    def add(self, trainer: int, use: Use, rows: int, blocks: Int64s) -> None:
        """Take in an announcement of so many rows, which lie in these distinct blocks, int64 `[n]`."""
        line = self._line(trainer, use)
        line.announced += rows
        if line.announced > line.begun:  # otherwise the trainer's request came first
            announced = _Announced(blocks, line.announced)
            line.waiting.append(announced)
            self._unread.append(announced)

    def begin(self, trainer: int, use: Use, rows: int) -> None:
        """Note that a trainer begins to use its next rows."""
        line = self._line(trainer, use)
        line.begun += rows
        while line.waiting and line.waiting[0].last <= line.begun:
            over = line.waiting.popleft()
            over.is_over = True
            self._residency.redeem(over.blocks[: over.read])
            self.promised -= over.read

    def next_blocks(self, most: int) -> Int64s | None:
        """Blocks of one announcement that should be read ahead next, `most` at most; None if there are none."""
        while self._unread and (self._unread[0].is_over or self._unread[0].read == self._unread[0].blocks.size):
            self._unread.popleft()
        if not self._unread:
            return None
        first = self._unread[0]
        return first.blocks[first.read : first.read + most]

    def promise(self, blocks: Int64s) -> None:
        """Note that the blocks that `next_blocks` has just named are read ahead."""
        self._unread[0].read += blocks.size
        self.promised += blocks.size
        self._residency.promise(blocks)

    def _line(self, trainer: int, use: Use) -> _Line:
        return self._lines.setdefault((trainer, use), _Line(deque()))
