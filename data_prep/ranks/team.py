"""The ranks that share a preparation, as each of them sees the others; one process alone is a team of one."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.terminal import printable
from data_prep.ranks.board import Board, Meet, Question, Stage, Take, Tell
from data_prep.ranks.progress import Progress

Value = TypeVar("Value")


class OtherRankError(BagpipeError):
    """Another rank cannot do its share; the first rank reports why."""


class ToldError(BagpipeError):
    """The message of another rank's error."""


class Link(Protocol):
    """Carries questions to the first rank."""

    rank: int
    size: int

    def ask(self, question: Question) -> Any:
        """The first rank's answer, which comes at once, whatever that rank is busy with."""

    def ask_again(self, question: Question) -> Any:
        """Ask until the answer is not None; waits as long as the other ranks live."""

    def end_all(self, message: str) -> None:
        """End all ranks by force, from any thread, with a message."""


@dataclass(frozen=True)
class _Done(Generic[Value]):
    value: Value


@dataclass(frozen=True)
class _Failed:
    """The message of a rank's error, which can always be sent; `knows`: whether the rank itself found the error."""

    words: str
    knows: bool


class Team:
    """The ranks of a preparation.

    Collective over all ranks: `begin`, `gather`, `together` and `first_does`, which every rank calls in the same order.

    Args:
        link: link to the first rank.
        board: a board; only that of the first rank is used.
        threads: threads that this rank may keep busy.

    Attributes:
        rank: number of this process; rank 0 speaks for all.
        size: number of ranks.
        threads: as given.
        has_failed: whether all ranks know that the preparation has failed, and leave it.
    """

    def __init__(self, link: Link, board: Board, threads: int) -> None:
        self._link, self._board = link, board
        self.rank, self.size, self.threads = link.rank, link.size, threads
        self.end_all = link.end_all
        self.has_failed = False
        self._meetings = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks for all."""
        return self.rank == 0

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in the order of ranks; waits as long as the others live."""
        self._meetings += 1
        values: list[Value] = self._link.ask_again(Meet(self._meetings, self.size, value))
        return values

    def each_does(self, work: Callable[[], Value]) -> Value:
        """This rank's result of `work`, once all ranks have succeeded; errors as for `together`."""
        own: list[Value] = []
        self.together(lambda: own.append(work()))
        return own[0]

    def together(self, work: Callable[[], Value]) -> list[Value]:
        """Let each rank do its share.

        Returns:
            The result of each rank, in the order of ranks.

        Raises:
            BagpipeError: some rank failed. On the first rank it is its own error, or one with the message of the lowest
                rank that failed; elsewhere it is `OtherRankError`.
        """
        outcome: _Done[Value] | _Failed
        own: BagpipeError | None = None
        try:
            outcome = _Done(work())
        except BagpipeError as error:
            self.tell(Tell(failed=True))
            own, outcome = error, _Failed(str(error), not isinstance(error, OtherRankError))
            if self.size == 1:
                self.has_failed = True
                raise
        outcomes: list[_Done[Value] | _Failed] = self.gather(outcome)
        failures = [found for found in outcomes if isinstance(found, _Failed)]
        if failures:
            self.has_failed = True
            if not self.is_first:
                raise OtherRankError("another rank failed")
            if own is not None and not isinstance(own, OtherRankError):
                raise own
            raise ToldError(next(failed.words for failed in failures if failed.knows))
        return [found.value for found in outcomes if isinstance(found, _Done)]

    def first_does(self, work: Callable[[], Value]) -> Value:
        """The first rank's result of `work`, on all ranks; errors as for `together`."""
        values: list[Any] = self.together(lambda: work() if self.is_first else None)
        first: Value = values[0]
        return first

    def begin(self, stage: Stage) -> None:
        """Begin a stage; `take` and `tell` are about it from now on."""
        if self.is_first:
            self._board.begin(stage)
        self.gather(None)

    def take(self) -> int:
        """The number of the next piece of the stage that nobody has taken."""
        number: int = self._link.ask(Take())
        return number

    def tell(self, told: Tell) -> int:
        """Report what was done; returns the first piece that is no longer wanted."""
        wanted: int = self._link.ask(told)
        return wanted

    def go_on(self, told: Tell) -> None:
        """Report what was done in a stage of which all pieces are needed.

        Raises:
            OtherRankError: another rank has failed.
        """
        if self.tell(told) <= 0:
            raise OtherRankError("another rank failed")


class _Alone:
    """The link of a single process, which asks itself."""

    rank, size = 0, 1

    def __init__(self, board: Board) -> None:
        self._board = board

    def ask(self, question: Question) -> Any:
        return self._board.answer(0, question)

    ask_again = ask

    def end_all(self, message: str) -> None:
        print(printable(message), file=sys.stderr, flush=True)
        os._exit(1)


def alone(progress: Progress, threads: int) -> Team:
    """A team of this process alone."""
    board = Board(progress)
    return Team(_Alone(board), board, threads)
