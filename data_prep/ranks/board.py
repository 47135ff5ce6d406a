"""What the ranks of a preparation tell each other: the first rank keeps the board, and answers questions of all ranks.

A rank with nothing to do takes the next piece of a stage's work; a rank reports how much it has done, and how many bad
rows it has found, so that no rank reads beyond the first row that ends the preparation.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from data_prep.ranks.progress import Progress, StageProgress

NO_LIMIT = 1 << 62
"""Stands for the number of a piece after all others."""


@dataclass(frozen=True)
class Stage:
    """A part of a preparation that the ranks share.

    Attributes:
        what: first word of a line of progress, such as `parsed`.
        total: amount of work, in bytes of input or rows.
        done: how much of `total` earlier runs have done.
        rows: how many rows earlier runs have done.
        unit: name of what `total` counts, such as `the input`.
        what_of: name of what `rows` counts, such as `rows`.
        allowed: most bad rows with which the preparation goes on.
        bad: bad rows that earlier runs found, by the number of the piece.
    """

    what: str
    total: int
    done: int = 0
    rows: int = 0
    unit: str = "the rows"
    what_of: str = "rows"
    allowed: int = NO_LIMIT
    bad: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Meet:
    """`size` ranks meet for the `number`-th time, each with a value. Answer: all values, once all ranks are there."""

    number: int
    size: int
    value: Any


@dataclass(frozen=True)
class Take:
    """Asks for work. Answer: the numbers 0, 1, 2 and so on, each given to one rank only."""


@dataclass(frozen=True)
class Tell:
    """Reports what a rank has done since its last report. Answer: pieces from this number on are no longer wanted.

    Attributes:
        done: how much of the stage's `total`.
        rows: how many rows.
        finished: whether a piece has been finished, which is worth a line of progress.
        piece: number of the piece that `bad` or `failed` is about.
        bad: bad rows of the piece so far.
        failed: whether the piece cannot be finished; without a piece, whether the whole stage cannot.
    """

    done: int = 0
    rows: int = 0
    finished: bool = False
    piece: int | None = None
    bad: int = 0
    failed: bool = False


Question = Meet | Take | Tell


class Board:
    """The state of the stages, kept by the first rank.

    Args:
        progress: called with lines of progress, perhaps from other threads, one at a time.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.RLock()
        self._met: dict[int, dict[int, Any]] = defaultdict(dict)
        self._left: dict[int, int] = {}
        self._taken = 0
        self._bad: dict[int, int] = {}
        self._allowed = NO_LIMIT
        self._failed_at = NO_LIMIT
        self._line: StageProgress | None = None

    def begin(self, stage: Stage) -> None:
        """Begin a stage, while all other ranks wait for it."""
        with self._lock:
            self._taken, self._bad, self._allowed = 0, dict(stage.bad), stage.allowed
            self._line = StageProgress(
                stage.what, stage.what_of, stage.total, stage.done, stage.rows, stage.unit, self._progress
            )

    def answer(self, rank: int, question: Question) -> Any:
        """The answer to a rank's question, at once."""
        with self._lock:
            match question:
                case Meet():
                    return self._meet(rank, question)
                case Take():
                    self._taken += 1
                    return self._taken - 1
                case Tell():
                    return self._tell(question)

    def _meet(self, rank: int, question: Meet) -> list[Any] | None:
        number, size = question.number, question.size
        met = self._met[number]
        met.setdefault(rank, question.value)
        if len(met) < size:
            return None
        values = [met[other] for other in range(size)]
        self._left[number] = self._left.get(number, 0) + 1
        if self._left[number] == size:  # All ranks have had the answer.
            del self._met[number], self._left[number]
        return values

    def _tell(self, told: Tell) -> int:
        if told.piece is not None and told.bad:
            self._bad[told.piece] = told.bad
        if told.failed:
            self._failed_at = min(self._failed_at, -1 if told.piece is None else told.piece)
        if self._line is not None:
            self._line.add(told.done, told.rows, finished=told.finished)
        return self._wanted()

    def _wanted(self) -> int:
        """The first piece that is no longer wanted: the one after the row or failure that ends the preparation."""
        pieces = sorted(self._bad)
        found = accumulate(self._bad[piece] for piece in pieces)
        last = next((piece for piece, bad in zip(pieces, found, strict=True) if bad > self._allowed), NO_LIMIT)
        return min(last, self._failed_at) + 1
