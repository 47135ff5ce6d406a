"""The interface of a planner, whoever implements it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.window import Window


@dataclass(frozen=True)
class PlannerSize:
    """What a planner took so far, over all its segments.

    Attributes:
        state_bytes: memory that it has from the start, in proportion to the tables.
        window_bytes: memory that grew with the window: its batches, and rows that wait to leave.
        shared_slots: largest number of shared slots in use at once.
        private_slots: largest number of private slots in use at once, of the trainer with the most.
    """

    state_bytes: int
    window_bytes: int
    shared_slots: int
    private_slots: int


class Planner(Protocol):
    """Moves a window over the batches of a segment and plans one batch after the other.

    `segment_planner` calls the methods in their order: `start_segment`, then for each batch of the segment `load` of
    what its window still lacks and `plan` (or `decide`, where only slots are counted), then `closing_plan`. Batches of
    a segment are numbered from 0.
    """

    @property
    def loads_beside(self) -> bool:
        """Whether a thread may load the batch after the window while another one plans, without a change of plans."""

    @property
    def window(self) -> Window:
        """The window that it plans with."""

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """Forget the batches of earlier segments; no row is resident now."""

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        """Take the next batch into the window.

        Args:
            rows: global rows, the samples of the first trainer first, then those of the second, and so on.
            bounds: first sample of each trainer's slice and the end of the last, `[trainers + 1]`; slices of the same
                size (`slice_bounds`) where it is not given.

        Raises:
            DataError: a row lies outside the tables, or outside its feature's table. The planner is of no use then.
        """

    def decide(self, number: int) -> None:
        """Give slots to what the oldest batch of the window fetches, and take it out of the window."""

    def plan(self, number: int) -> BatchPlan:
        """Decide as `decide` does, and return the plan; its arrays belong to the caller."""

    def closing_plan(self) -> BatchPlan:
        """Retire whatever is left."""

    def size(self) -> PlannerSize:
        """Memory and most slots that it has taken so far."""


@runtime_checkable
class DraftingPlanner(Planner, Protocol):
    """A planner whose plans other threads may write while it decides on later batches, without a change of plans."""

    @property
    def writing_threads(self) -> int:
        """How many plans may be written at once, each by a thread of its own, while it decides; 0: none."""

    def draft(self, number: int) -> Callable[[], BatchPlan]:
        """Decide on the oldest batch of the window.

        Returns:
            A function that writes the plan, to be called once. With W writing threads, it must have returned before the
            plan of the batch W later is begun, and before the batch after that one is decided.
        """


def writing_threads_of(planner: Planner) -> int:
    """How many plans of a planner other threads may write while it decides on later batches."""
    return planner.writing_threads if isinstance(planner, DraftingPlanner) else 0
