"""Where a trainer's time goes and what its plans ask for, added up over steps."""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields

from bagpipe_hpc.plan.batch_plan import ReceivedPlan

_MOVED = (
    *("reduced_now", "reduced_later", "private", "rows_fetched", "rows_written_back"),
    *("copied", "sent_home", "relayed", "rows_added", "over_hosts"),
)


@dataclass
class StepStats:
    """Sums over training steps; times in seconds of the compute thread.

    `fetched_rows` are a batch's rows that any trainer fetches; `rows_fetched` and `rows_written_back` are what this
    trainer moves; `rows_added` are those of the latter that it adds to and may keep. `copied` are rows of which it got
    copies, `sent_home` those whose gradients it sent to their homes; both are 0 where rows are replicated. `relayed`
    are rows of either kind that came through it from its row of the grid, for itself or others; 0 where they travel
    directly. `over_hosts` are those of `reduced_now` and `reduced_later` whose sum went from host to host, since a
    trainer of each host holds the row.
    """

    steps: int = 0
    samples: int = 0
    total_s: float = 0.0
    wait_rows_s: float = 0.0
    wait_reductions_s: float = 0.0
    unique_rows: int = 0
    fetched_rows: int = 0
    reduced_now: int = 0
    reduced_later: int = 0
    private: int = 0
    rows_fetched: int = 0
    rows_written_back: int = 0
    copied: int = 0
    sent_home: int = 0
    relayed: int = 0
    rows_added: int = 0
    over_hosts: int = 0

    @property
    def compute_s(self) -> float:
        """Time that was not spent waiting."""
        return self.total_s - self.wait_rows_s - self.wait_reductions_s

    @property
    def samples_per_s(self) -> float:
        """Samples of global batches in a second; 0 where no time has passed."""
        return self.samples / self.total_s if self.total_s else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the batches' unique rows that were resident already."""
        return 1.0 - self.fetched_rows / self.unique_rows if self.unique_rows else 0.0

    def count_plan(self, plan: ReceivedPlan) -> None:
        """Add what a plan asks for."""
        self.steps += 1
        self.samples += plan.batch_samples
        for shared, own in plan.groups:
            self.unique_rows += shared.unique_rows
            self.fetched_rows += shared.fetched_rows
            self.reduced_now += shared.now_slots.size
            self.reduced_later += shared.later_slots.size
            self.private += own.private_slots.size
            if exchange := own.exchanged:
                self.reduced_now += exchange.now.slots.size
                self.reduced_later += exchange.later.slots.size
                self.copied += int(exchange.counts.next_from.sum() + exchange.counts.rest_from.sum())
                self.sent_home += int(exchange.counts.now_to.sum() + exchange.counts.later_to.sum())
                self.over_hosts += exchange.hosted.now_rows + exchange.hosted.later_rows
                self.relayed += int(exchange.counts.relayed.sum())
            self.rows_fetched += shared.fetch_rows.size + own.fetch_rows.size
        self.count_written(plan)

    def count_written(self, plan: ReceivedPlan) -> None:
        """Add what a plan writes back; a closing plan asks for nothing else."""
        self.rows_written_back += plan.rows_written
        self.rows_added += sum(own.add_rows.size for _, own in plan.groups if own.add_rows is not None)

    def timed(self, field: str) -> AbstractContextManager[None]:
        """Add the time of the body to a field."""
        return _Timed(self, field)

    def since(self, earlier: "StepStats") -> "StepStats":
        """The sums since an earlier copy."""
        return StepStats(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})

    def copy(self) -> "StepStats":
        """A copy that does not change."""
        return StepStats(**asdict(self))

    def per_step(self) -> dict[str, float]:
        """Means over the steps, times in milliseconds."""
        steps = max(1, self.steps)
        times = {
            name: getattr(self, f"{name}_s") * 1e3 / steps
            for name in ("total", "compute", "wait_rows", "wait_reductions")
        }
        counts = {name: getattr(self, name) / steps for name in _MOVED}
        return {f"{name}_ms": value for name, value in times.items()} | counts


class _Timed:
    """The body of a `with` statement, whose time is added to a field."""

    __slots__ = ("_field", "_start_s", "_stats")

    def __init__(self, stats: StepStats, field: str) -> None:
        self._stats, self._field = stats, field

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._start_s
        setattr(self._stats, self._field, getattr(self._stats, self._field) + seconds)
