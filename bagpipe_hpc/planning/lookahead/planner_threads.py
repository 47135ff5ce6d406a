"""How the native planner's threads share out a batch: who loads, who decides, who writes plans. Pure.

A table is loaded by one thread. All that decide share out each piece of their work. A plan is written by one thread,
while later batches are decided on. So all three go on side by side, each for other batches, and a batch takes as long
as the slowest of them. The times below are those of batches of 65,536 samples with 26 look-ups
(benchmarks/notes/2026-11-27-writers-of-plans.md).
"""

from dataclasses import dataclass

_LOOK_UPS_A_THREAD = 200_000
"""With few trainers. A thread then works for some 5 ms a batch."""
_TRAINERS_AS_FAST = 128
"""Where rows have one home, so many trainers more ask for as many threads more: their steps are shorter."""
_MOST_THREADS = 32
"""There are few large tables, each of which is loaded by one thread."""
_MOST_WRITING = 12
"""Each keeps a batch more."""
_MOST_PAIRS = 1 << 23
"""And some numbers for each pair of trainers: where those are more together, one thread writes."""
_LEAST_THREADS_BESIDE = 4
"""With fewer, the work could not be shared out evenly."""
_LOADING_SHARE = 0.5
"""Of the threads, where those that decide write as well."""
_TRAINERS_AS_COSTLY = 128
"""With so many, all else takes twice as long there where rows have one home."""
_DECIDING = 0.45
"""Of deciding on a batch, where loading it takes 1. It takes less of one thread, but is not shared out as well."""
_WRITING, _TRAINERS_TO_WRITE_FOR = 0.5, 350
"""Of writing a plan, with few trainers; so many more take 1 besides."""


@dataclass(frozen=True)
class ThreadShares:
    """Threads of a planner.

    Attributes:
        total: all of them; those that are not named below decide, and do the rest where nobody else does.
        loading: load the batch behind the window meanwhile; 0: nobody else does.
        writing: write plans meanwhile, each its own; 0: nobody else does.

    Raises:
        ValueError: no thread is left to decide.
    """

    total: int
    loading: int = 0
    writing: int = 0

    def __post_init__(self) -> None:
        if self.deciding < 1 or min(self.loading, self.writing) < 0:
            raise ValueError(
                f"loading {self.loading}, writing {self.writing}: of {self.total} threads one at least decides"
            )

    @property
    def deciding(self) -> int:
        """The others."""
        return self.total - self.loading - self.writing


ONE_THREAD = ThreadShares(1)
"""It does everything."""


def default_threads(look_ups: int, trainers: int, cores: int) -> int:
    """Threads of a planner whose batches have so many look-ups.

    Args:
        look_ups: of a batch.
        trainers: T where rows have one home, else 0.
        cores: that it may use.
    """
    wanted = int(look_ups * (1 + trainers / _TRAINERS_AS_FAST)) // _LOOK_UPS_A_THREAD
    return max(1, min(wanted, cores, _MOST_THREADS))


def share_out(threads: int, trainers: int, *, writes_apart: bool) -> ThreadShares:
    """Who does what.

    Args:
        threads: of the planner.
        trainers: as for `default_threads`.
        writes_apart: whether plans may be written while later batches are decided.
    """
    if threads < _LEAST_THREADS_BESIDE:
        return ThreadShares(threads, 0, 0)
    if not writes_apart:
        return ThreadShares(threads, max(1, round(threads * _LOADING_SHARE / (1 + trainers / _TRAINERS_AS_COSTLY))), 0)
    write_time = _WRITING + trainers / _TRAINERS_TO_WRITE_FOR
    deciding = max(1, round(threads * _DECIDING / (1 + _DECIDING + write_time)))
    others = threads - deciding
    most = min(_MOST_WRITING, max(1, _MOST_PAIRS // trainers**2))
    writing = min(most, others - max(1, round(others / (1 + write_time))))
    return ThreadShares(threads, others - writing, writing)
