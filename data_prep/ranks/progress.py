"""Lines of progress, now and then: how much is done, how fast, and how long the rest will take."""

import time
from collections.abc import Callable

from bagpipe_hpc.progress import LongWork

Progress = Callable[[str], None]
"""Called with a line of progress now and then."""

LINE_EVERY_S = 5.0
"""Least seconds between lines of a stage; its last line always comes."""
_UNITS = ((3600, "h"), (60, "min"), (1, "s"))


class StageProgress:
    """Progress of a stage: on a terminal a bar, which the last line replaces; elsewhere lines.

    Args:
        what: what has been done, such as `parsed`.
        what_of: to what it is done, such as `rows`.
        total: amount of work.
        done: how much of `total` earlier runs have done; it counts in the share but not in the rate.
        rows: how many rows earlier runs have done.
        unit: name of what `total` counts, such as `the input`.
        progress: called with the lines.
    """

    def __init__(
        self, what: str, what_of: str, total: int, done: int, rows: int, unit: str, progress: Progress
    ) -> None:
        self._what_of = what_of
        self._what, self._unit, self._total = what, unit, total
        self._done, self._rows = done, rows
        self._done_before, self._rows_before = done, rows
        self._progress = progress
        self._bar = LongWork(what, total - done, unit)
        self._start_s = time.monotonic()
        self._said_s = self._start_s

    def add(self, done: int, rows: int, *, finished: bool) -> None:
        """Take note of what was done, and report it if it is time.

        Args:
            done: how much of the total.
            rows: how many rows.
            finished: whether a piece has been finished; lines come only then.
        """
        self._done += done
        self._rows += rows
        now_s = time.monotonic()
        is_last = self._done >= self._total > 0
        self._bar.advance(done, f"{self._rows:,} {self._what_of}")
        if is_last:
            self._bar.close()
        is_due = now_s - self._said_s >= LINE_EVERY_S and not self._bar.is_shown
        if finished and (is_last or is_due):
            self._said_s = now_s
            self._progress(self.line(now_s - self._start_s))

    def line(self, seconds: float) -> str:
        """The line of progress after `seconds` seconds."""
        share = f" ({min(1.0, self._done / self._total):.0%} of {self._unit})" if self._total else ""
        line = f"{self._what} {self._rows:,} {self._what_of}{share}"
        done, rows = self._done - self._done_before, self._rows - self._rows_before
        if seconds > 0 and done:
            line += f", {rows / seconds:,.0f} {self._what_of}/s"
            if self._done < self._total:
                line += f", {duration((self._total - self._done) * seconds / done)} left"
        return line


def duration(seconds: float) -> str:
    """A time in the two largest units that it has: `2 h 5 min`, `40 s`."""
    left, parts = round(seconds), list[str]()
    for size, name in _UNITS:
        if left >= size or (size == 1 and not parts):
            parts.append(f"{left // size} {name}")
        left %= size
    return " ".join(parts[:2])
