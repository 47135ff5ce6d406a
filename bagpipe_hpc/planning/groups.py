"""Planning where tables have different widths: a planner for each group of tables of one width.

All see the same batches with the same slices, but each only its own group's look-ups. So each group numbers its rows
and slots apart from the others, and a plan of the whole holds the plans of the groups side by side.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.errors import CapacityError, DataError, PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.full_batches import Keep
from bagpipe_hpc.plan.group_look_ups import GroupLookUps
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.slices import Slicing
from bagpipe_hpc.planning.planner import DraftingPlanner, Planner, PlannerSize, writing_threads_of
from bagpipe_hpc.planning.policy import Policy, name_of
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window


class GroupedPlanner:
    """Planners of several groups, as one `Planner` of rows numbered through all tables.

    Args:
        parts: the planner of each group; all have the same window.
        look_ups: picks each group's look-ups out of a batch.
    """

    def __init__(self, parts: Sequence[Planner], look_ups: Sequence[GroupLookUps]) -> None:
        self.parts = tuple(parts)
        self._look_ups = tuple(look_ups)

    @property
    def loads_beside(self) -> bool:
        """As `Planner.loads_beside`, of all groups."""
        return all(part.loads_beside for part in self.parts)

    @property
    def writing_threads(self) -> int:
        """As `DraftingPlanner.writing_threads`: the fewest of any group."""
        return min(map(writing_threads_of, self.parts))

    @property
    def window(self) -> Window:
        """Look-ahead and group of batches."""
        return self.parts[0].window

    def start_segment(self, *, training: bool, first_step: int) -> None:
        """As `Planner.start_segment`, in each group."""
        for part in self.parts:
            part.start_segment(training=training, first_step=first_step)

    def load(self, rows: Bags, bounds: Sequence[int] | None = None) -> None:
        """As `Planner.load`; each group takes its own look-ups.

        Raises:
            DataError: as `Planner.load`; the message numbers features and rows within the group that it names.
        """
        for part, own in zip(self.parts, self._look_ups, strict=True):
            try:
                part.load(own.of(rows), bounds)
            except DataError as error:
                features = ", ".join(map(str, own.features))
                raise DataError(f"of features {features} alone, which have rows of one width: {error}") from error

    def decide(self, number: int) -> None:
        """As `Planner.decide`, in each group."""
        for part in self.parts:
            part.decide(number)

    def plan(self, number: int) -> BatchPlan:
        """The plans of all groups.

        Raises:
            PlanError: they do not retire the same group of batches.
        """
        return _side_by_side([part.plan(number) for part in self.parts])

    def draft(self, number: int) -> Callable[[], BatchPlan]:
        """As `DraftingPlanner.draft`, in each group.

        Raises:
            PlanError: as `plan`, when the decision is written down.
        """
        drafts = [part.draft(number) for part in self.parts if isinstance(part, DraftingPlanner)]
        return lambda: _side_by_side([write() for write in drafts])

    def closing_plan(self) -> BatchPlan:
        """The closing plans of all groups, all with the last group of batches that any of them retires."""
        plans = [part.closing_plan() for part in self.parts]
        last = max(plan.shared.retire_group for plan in plans)
        return _side_by_side([replace(plan, shared=replace(plan.shared, retire_group=last)) for plan in plans])

    def size(self) -> PlannerSize:
        """What all groups took together."""
        sizes = [part.size() for part in self.parts]
        return PlannerSize(
            sum(size.state_bytes for size in sizes),
            sum(size.window_bytes for size in sizes),
            sum(size.shared_slots for size in sizes),
            sum(size.private_slots for size in sizes),
        )


def slots_by_group(planner: Planner) -> tuple[CacheSlots, ...]:
    """The largest numbers of slots that were in use at once, in the cache of each group of tables."""
    parts = planner.parts if isinstance(planner, GroupedPlanner) else (planner,)
    sizes = [part.size() for part in parts]
    return tuple(CacheSlots(size.shared_slots, size.private_slots) for size in sizes)


def _side_by_side(plans: Sequence[BatchPlan]) -> BatchPlan:
    first, *others = plans
    for other in others:
        if other.shared.retire_group != first.shared.retire_group:
            raise PlanError(
                f"batch {first.shared.batch}: the policy retires group {first.shared.retire_group} of some tables and "
                f"{other.shared.retire_group} of others: which group a batch retires may depend on its number alone"
            )
    return replace(first, others=tuple(others))


class RunPolicy:
    """The policy of a run, over all groups of its tables.

    Args:
        whole: the policy that decides on the samples; it sees the look-ups of all tables.
        parts: the policies that make the planners of the groups; `whole` itself where there is one group.
        look_ups: picks each group's look-ups out of a batch.
        start_slicing: gives the samples of a new segment to trainers; `whole` does if it is not given.
    """

    def __init__(
        self,
        whole: Policy,
        parts: Sequence[Policy],
        look_ups: Sequence[GroupLookUps],
        start_slicing: Callable[[], Slicing] | None = None,
    ) -> None:
        self.whole = whole
        """The policy that decides on the samples."""
        self._start_slicing = start_slicing or whole.start_slicing
        self.parts = tuple(parts)
        self._look_ups = tuple(look_ups)
        self.adds_rows = whole.adds_rows
        """As `Policy.adds_rows`."""
        self.fetches_late = whole.fetches_late
        """As `Policy.fetches_late`."""

    def window(self, wanted: Window) -> Window:
        """As `Policy.window`.

        Raises:
            PlanError: what the policy gives is not a `Window`.
        """
        with POLICIES.blaming(name_of(self.whole), "window fails"):
            found = self.whole.window(wanted)
        if not isinstance(found, Window):
            name = type(self.whole).__name__
            raise PlanError(f"{name}.window gives {found!r}: return a Window(lookahead, group), such as the one wanted")
        return found

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """Bytes that the planners of all groups take at least; arguments as for `Policy.least_bytes`."""
        with POLICIES.blaming(name_of(self.whole), "least_bytes fails"):
            return sum(part.least_bytes(window, most_batches) for part in self.parts)

    def require_memory(self, window: Window, most_batches: int, free_bytes: int) -> None:
        """Check, before a planner is made, that there is the memory that it takes at least.

        Args:
            window: as for `Policy.least_bytes`.
            most_batches: as for `Policy.least_bytes`.
            free_bytes: free memory of this host.

        Raises:
            CapacityError: there is less.
        """
        if (least := self.least_bytes(window, most_batches)) > free_bytes:
            rows = sum(part.facts.total_rows for part in self.parts)
            raise CapacityError(
                f"lookahead.batches = {window.lookahead}: the planner of {rows} rows needs {least / 1e9:.1f} GB, and "
                f"{free_bytes / 1e9:.1f} GB are free here; use {self.smaller_state_or}a shorter window, or a host with "
                "more memory"
            )

    def remark(self, most_batches: int) -> str:
        """As `Policy.remark`."""
        with POLICIES.blaming(name_of(self.whole), "remark fails"):
            return self.whole.remark(most_batches)

    @property
    def smaller_state(self) -> str:
        """As `Policy.smaller_state`."""
        with POLICIES.blaming(name_of(self.whole), "smaller_state fails"):
            return self.parts[0].smaller_state

    @property
    def smaller_state_or(self) -> str:
        """`smaller_state` as the first of several cures in a message, with a comma; empty where there is none."""
        return f"{self.smaller_state}, " if self.smaller_state else ""

    def expected_slots(self, beginning: Sequence[CacheSlots]) -> tuple[CacheSlots, ...]:
        """As `Policy.expected_slots`, of each group's cache."""
        with POLICIES.blaming(name_of(self.whole), "expected_slots fails"):
            return tuple(part.expected_slots(slots) for part, slots in zip(self.parts, beginning, strict=True))

    def start_slicing(self) -> Slicing:
        """As `Policy.start_slicing`."""
        return self._start_slicing()

    def keeping(self, segment: Segment) -> Keep | None:
        """As `Policy.keeping`, of a segment of any kind."""
        return self.whole.keeping(segment) if segment.is_training else None

    def planner(self, window: Window, slots: Sequence[CacheSlots] | None = None) -> Planner:
        """A new planner.

        Args:
            window: as for `Policy.planner`.
            slots: the slots of each group's cache; without a limit if not given.

        Raises:
            BagpipeError: the policy fails to make one.
        """
        limits = slots or [CacheSlots(UNLIMITED, UNLIMITED)] * len(self.parts)
        with POLICIES.blaming(name := name_of(self.whole), "planner fails"):
            parts = zip(self.parts, limits, strict=True)
            planners = [part.planner(window, own.shared, own.private) for part, own in parts]
        if missing := [planner for planner in planners if not hasattr(planner, "start_segment")]:
            raise PlanError(f"{name}: planner gives {missing[0]!r}: return a Planner, such as a RulePlanner")
        return planners[0] if len(planners) == 1 else GroupedPlanner(planners, self._look_ups)

    def require_sound_additions(self, plan: BatchPlan) -> None:
        """As `Policy.require_sound_additions`, of each group's plan."""
        for part, own in zip(self.parts, plan.groups, strict=True):
            part.require_sound_additions(own)
