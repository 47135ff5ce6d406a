"""Progress bars on a terminal, drawn by rich: one line, drawn over in place, that fits. Elsewhere nothing is drawn.

A line, not several: ranks of a run share a terminal through their launcher, and each begins with `ERASE_LINE`.
"""

import io
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from bagpipe_hpc.terminal import ERASE_LINE, columns, fitting

_SHORTEST_BAR, _LONGEST_BAR = 8, 40
_STYLES = ("bright_black", "cyan", "green")
"""Of what is to be done, of what is done, of all when it is done: colours that every terminal has."""
_USUAL_WIDTH = 80
"""Of a terminal; a narrower one has a bar only where all that matters more leaves room for it."""
_FIRST_AFTER_S = 0.5
"""Work that is done sooner has no bar."""
_EVERY_S = 0.2


def bar_line(parts: Sequence[str], dispensable: Sequence[int], share: float, width: int) -> str:
    """A line for a terminal, with a bar behind its first part where there is room for one.

    Args:
        parts: what the line says, in its order.
        dispensable: indices of parts that are left out one after the other until the line fits, the first one first.
        share: of the work that is done, 0 to 1.
        width: columns of the terminal.
    """
    reserved = _SHORTEST_BAR + 2 if width >= _USUAL_WIDTH else 0
    line = fitting(parts, dispensable, width - reserved)
    room = min(width - len(line) - 3, _LONGEST_BAR)
    first = parts[0]
    if room < _SHORTEST_BAR or not line.startswith(first):
        return line
    return f"{first}  {_bar(share, room)}{line[len(first) :]}"


def _bar(share: float, width: int) -> str:
    """A bar in the colours of the terminal, which NO_COLOR switches off."""
    from rich.console import Console  # noqa: PLC0415 - most processes draw nothing
    from rich.progress_bar import ProgressBar  # noqa: PLC0415

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, force_terminal=True, width=width, legacy_windows=False)
    with console.capture() as drawn:
        bar = ProgressBar(1.0, min(1.0, max(0.0, share)), width, style=_STYLES[0], complete_style=_STYLES[1])
        bar.finished_style = _STYLES[2]
        console.print(bar, end="")
    return drawn.get().rstrip("\n")


class LongWork:
    """A bar while something takes long, gone when it is done; a context manager.

    Args:
        what: is done, such as `filling the tables`.
        total: how much there is to do.
        unit: of it, such as `rows`.
        is_told: false draws nothing, on ranks that do not speak for the others.
    """

    def __init__(self, what: str, total: int, unit: str, *, is_told: bool = True) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._columns = columns() if is_told else 0
        self._done, self._note = 0, ""
        self._start_s = time.monotonic()
        self._due_s = self._start_s + _FIRST_AFTER_S
        self._is_open = False

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal that shows it."""
        return self._columns > 0

    def advance(self, done: int = 1, note: str = "") -> None:
        """So much more is done; `note` says it in other units."""
        self._done += done
        self._note = note
        if self._columns and (now_s := time.monotonic()) >= self._due_s:
            self._due_s = now_s + _EVERY_S
            self._draw(now_s - self._start_s)

    def _draw(self, seconds: float) -> None:
        share = self._done / self._total if self._total else 0.0
        counts = self._note or f"{self._done:,} of {self._total:,} {self._unit}"
        left = f"{clock(seconds * (1.0 - share) / share)} left" if 0.0 < share <= 1.0 else ""
        parts = [self._what, f"{share:.0%}", counts, left]
        line = bar_line([part for part in parts if part], [2, 1], share, self._columns)
        print(f"{ERASE_LINE}{line}", end="", file=sys.stderr, flush=True)
        self._is_open = True

    def __enter__(self) -> "LongWork":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._is_open:
            print(ERASE_LINE, end="", file=sys.stderr, flush=True)
            self._is_open = False


def clock(seconds: float) -> str:
    """A time as `0:04` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
