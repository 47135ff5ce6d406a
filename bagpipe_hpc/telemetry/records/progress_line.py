"""How far a run is, on a terminal: one line, drawn over, with a bar and what fits beside it. Elsewhere nothing."""

import sys
from typing import NamedTuple

from bagpipe_hpc.progress import LongWork, bar_line
from bagpipe_hpc.terminal import ERASE_LINE, columns


class Interval(NamedTuple):
    """What is shown of an interval of training: parts of the line, waits, the time that is left, the share done."""

    parts: list[str]
    waits: str
    left: str
    share: float


class ProgressLine:
    """The line of a run.

    Attributes:
        columns: width of the terminal; 0 where there is none.
    """

    def __init__(self) -> None:
        self.columns = columns()
        self._is_open = False
        self._shown: Interval | None = None
        self._saving: int | None = None
        self._evaluating: LongWork | None = None

    def show(self, interval: Interval) -> None:
        """Show the newest interval."""
        self._shown = interval
        self._draw()

    def saving(self, step: int) -> None:
        """Show that the checkpoint of a step is being written, until it was `saved`."""
        self._saving = step
        self._draw()

    def saved(self) -> None:
        """The checkpoint is complete; what is said of it has a line of its own."""
        self._saving = None
        self.end()

    def scored(self, batches: int, of: int) -> None:
        """Show a bar of an evaluation, on a line of its own."""
        if not self.columns:
            return
        if self._evaluating is None:
            self.end()
            self._evaluating = LongWork("evaluating", of, "batches")
        self._evaluating.advance()
        if batches == of:
            self._evaluating.close()
            self._evaluating = None

    def end(self) -> None:
        """Leave the line as it is: what follows begins another."""
        if self._is_open:
            print(file=sys.stderr, flush=True)
            self._is_open = False

    def _draw(self) -> None:
        if not self.columns or self._shown is None:
            return
        saving = "" if self._saving is None else f"saving step {self._saving}"
        extra = [part for part in (self._shown.waits, saving) if part]
        parts = [*self._shown.parts, *extra, f"{self._shown.left} left"]
        # Waits go first, then hits, then the rate; the time that is left stays longest.
        line = bar_line(parts, [*range(len(parts) - 2, 1, -1), len(parts) - 1], self._shown.share, self.columns)
        print(f"{ERASE_LINE}{line}", end="", file=sys.stderr, flush=True)
        self._is_open = True
