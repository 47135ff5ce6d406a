"""Which steps of a run show its steady state, and how long the run is for that."""

from dataclasses import dataclass
from typing import Self

from bagpipe_hpc.config.schema import LookaheadConfig
from bagpipe_hpc.planning.window import Window


@dataclass(frozen=True)
class StepRange:
    """Steps that count.

    Attributes:
        first: steps before the first that counts.
        last: the last step that counts.
        total: steps of the run.
    """

    first: int
    last: int
    total: int

    @classmethod
    def steady(cls, lookahead: LookaheadConfig, measured: int, *, at_least: int = 0, every: int = 1) -> Self:
        """So many steps of a run in which every rank does all its work.

        In the first window the cache fills, and more rows are fetched than later. Behind the last step that counts
        come as many as `steps_behind` says.

        Args:
            lookahead: of the run.
            measured: steps that count, or a few more.
            at_least: steps that do not count at the beginning, also where the window is shorter.
            every: `first` and `last` are multiples of it, since a run reports its progress then.
        """
        first = _made_up(max(at_least, lookahead.batches), every)
        last = first + _made_up(measured, every)
        return cls(first, last, last + steps_behind(lookahead))

    def counts(self, step: int) -> bool:
        """Whether a step counts; the run's first has number 1."""
        return self.first < step <= self.last


def steps_behind(lookahead: LookaheadConfig) -> int:
    """Steps behind the last that counts, with which no rank runs out of work before that one.

    The oracle runs out first. It is L + 2C + 1 plans ahead of the trainers (`roles/oracle.py`), makes one more while it
    waits, and has read the L batches of that plan's window, and one more (`planning/segment_planner.py`).
    """
    plans_ahead = Window(lookahead.batches, lookahead.group_batches).plans_ahead
    return plans_ahead + 1 + lookahead.batches + 1


def _made_up(steps: int, every: int) -> int:
    return -(-steps // every) * every
