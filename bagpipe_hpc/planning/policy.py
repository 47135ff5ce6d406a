"""The interface of a policy, which decides on the order of samples, which trainer gets which, and what happens to rows.

The engine carries plans out (docs/extending.md says what it guarantees and what it requires); a policy makes the
planner that writes them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import getattr_static
from typing import Any, ClassVar

from numpy.typing import NDArray

from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.full_batches import Keep
from bagpipe_hpc.plan.plan_record import any_has
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.plan.section_order import SectionOrder
from bagpipe_hpc.plan.slices import Assigned, BatchSlices, Slicing
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.row_slots import state_bytes
from bagpipe_hpc.planning.run_facts import RunFacts, Sight, TrainingRows, WatchedRows
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window

__all__ = ["Assignment", "Policy", "RunFacts", "Sight", "TrainingRows", "WatchedRows", "with_spare"]

_SPARE_PART = 4
"""A spare slot is added for each so many slots that the beginning of a run needs."""
_CLASS_METHODS = ("decision", "hears", "order", "prepare", "replays", "watched")
"""Methods that are called before there is an object."""

Assignment = Callable[[Bags], Sequence[Assigned] | None]
"""Gives the samples of a batch to trainers, from its global rows: for each trainer the numbers of its samples, 0 to
below n, in the order in which it computes them, or a tuple of its micro-batches; None for contiguous slices of the same
size. No micro-batch of a trainer but its last may look up a row that is fetched for the batch."""


class Policy(ABC):
    """The policy of a run. The same settings and facts give the same samples and plans on any rank, at any time.

    Its own settings are an object of its class `Settings`, if it has one.

    Args:
        settings: its own settings.
        facts: the facts of the run.
    """

    adds_rows: ClassVar[bool] = False
    """Whether plans tell trainers to add changes of rows (`TrainerPlan.add_rows`). Such a run keeps only a row's
    weights: no optimizer state, no version."""

    has_micro_batches: ClassVar[bool] = False
    """Whether its assignment gives trainers micro-batches. Its rows are replicated and have one width then."""

    fetches_late: bool = False
    """Whether its planners let a batch's fetches wait for a later group where slots are lacking. Then the cache may be
    measured by the beginning of a run; else all batches are read before the first step."""

    orders_sections: ClassVar[bool] = False
    """Whether `order` gives a `SectionOrder`, whose kinds may be put together from lanes."""

    order_settings: ClassVar[tuple[str, ...]] = ()
    """Settings beside its own, such as `cache.rows`, that `order` depends on. A resumed run must have the same."""

    sharings: ClassVar[tuple[str, ...]] = ("replicated",)
    """The values of `cache.sharing` for which it has planners. A subclass that defines `planner` must state them anew;
    else it has this default."""

    writes_apart: ClassVar[bool] = False
    """Whether a row is put with only one group until every trainer's part of that group is at the servers, as it is
    where rows leave the caches when they are written back. Then a trainer puts a group while others still put the group
    before; else it waits for them. Not for policies that add rows. A subclass that defines `planner` must state it
    anew."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in _CLASS_METHODS:
            if not isinstance(getattr_static(cls, name), classmethod):
                raise TypeError(f"{cls.__name__}.{name} must be a class method: write @classmethod over it")
        if "planner" in vars(cls):
            cls.sharings = vars(cls).get("sharings", Policy.sharings)
            cls.writes_apart = vars(cls).get("writes_apart", Policy.writes_apart)
        if cls.adds_rows and cls.writes_apart:
            raise TypeError(f"{cls.__name__} adds rows (adds_rows), so its groups wait for each other: no writes_apart")
        watches = cls.watched.__func__ is not Policy.watched.__func__  # type: ignore[attr-defined]
        if watches and (cls.see is Policy.see or cls.restore is Policy.restore):
            raise TypeError(
                f"{cls.__name__} watches rows (watched): it must say what it does with them, see and restore"
            )

    def __init__(self, settings: Any, facts: RunFacts) -> None:
        self.settings = settings
        self.facts = facts

    @classmethod  # noqa: B027 - few policies need something
    def prepare(cls, settings: Any, training: TrainingRows) -> None:
        """Make what `order` reads, if it does not exist. By default nothing.

        Called on the oracle, and in the reference, before a run that trains is planned. It may take long.

        Args:
            settings: its own settings.
            training: the training rows.

        Raises:
            BagpipeError: it cannot be made.
        """

    @property
    def trainers_of_host(self) -> int:
        """How many consecutive trainers should share a host, where a row is held once for them; by default 0: none."""
        return 0

    @property
    def most_missing(self) -> int:
        """Most updates of a row by other trainers that a look-up may miss; by default 0.

        A batch makes one update for each trainer that uses the row. More than 0 is for policies that add changes.
        """
        return 0

    @classmethod
    def order(
        cls,
        settings: Any,  # noqa: ARG003
        default: SampleOrder,
        training: TrainingRows,  # noqa: ARG003
    ) -> SampleOrder | SectionOrder:
        """The order in which training samples are used. By default that of `data.shuffle` and `data.block_rows`.

        Args:
            settings: its own settings. The order may depend on nothing else of a run, so that a run that is resumed
                with another number of trainers has the same order.
            default: the order that the configuration asks for, of one epoch.
            training: the training rows.

        Returns:
            An order of the same samples: each of them once. Sections (`orders_sections`) come without lanes; the engine
            puts their kinds together from lanes as `data.lanes` says.
        """
        return default

    @classmethod
    def hears(cls, settings: Any) -> bool:  # noqa: ARG003
        """Whether `order` depends on evaluations within an epoch (`TrainingRows.heard`).

        It is then called anew after each of them, and must leave the samples before that evaluation where they were.
        """
        return False

    @classmethod
    def replays(cls, settings: Any) -> str:  # noqa: ARG003
        """Output folder of the run whose evaluations or decisions it takes over; empty where it makes its own."""
        return ""

    @classmethod
    def decision(cls, settings: Any, training: TrainingRows) -> str:  # noqa: ARG003
        """A message about how the order changes after the last evaluation that it has heard; empty if there is none."""
        return ""

    @classmethod
    def watched(cls, settings: Any, training: TrainingRows) -> WatchedRows | None:  # noqa: ARG003
        """Rows whose weights it is shown, and when; None for none.

        Called on every rank, after `prepare`. It has the arguments of `order`, and may depend on the same. All tables
        must then have one width.
        """
        return None

    def see(self, sight: Sight) -> dict[str, NDArray[Any]]:
        """Take in the weights of the watched rows, on the oracle and in the reference, between two segments.

        Returns:
            Arrays that it keeps of them and could not find again. They are written to the output folder, and a run that
            is resumed gives them to `restore`.
        """
        raise NotImplementedError

    def restore(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Take up what the last `see` before the checkpoint has kept, read from a file that must not be trusted.

        Raises:
            ValueError: `see` keeps no such arrays; the run's message names the file.
        """
        raise NotImplementedError

    def keeping(self, segment: Segment) -> Keep | None:  # noqa: ARG002
        """Which samples of the batches of a segment are trained on; None for all.

        Those that stay are put together to full batches, whatever batches they were in, so that a segment has fewer.
        The cache is measured with all samples in their first batches, so the planner's `size` must allow for any
        others.
        """
        return None

    def assignment(self) -> Assignment | None:
        """How the samples of a segment's batches are given to trainers; None for contiguous slices of the same size.

        Called once a segment, on the oracle and in the reference. The function that it returns is called with each
        batch in turn, so it may learn from the batches of its segment; then results depend, in their last bits, on
        where segments end: at checkpoints and epochs. It must give each sample to exactly one trainer; a trainer may
        get none.
        """
        return None

    def start_slicing(self) -> Slicing:
        """The assignment of a new segment, as the engine uses it.

        What it returns raises `PlanError` for a batch of which not every sample is given to exactly one trainer.
        """
        name = name_of(self)
        trainers = self.facts.trainers
        with POLICIES.blaming(name, "assignment fails"):
            assign = self.assignment()

        def slices(rows: Bags) -> BatchSlices:
            assigned = None
            if assign:
                with POLICIES.blaming(name, f"its assignment of a batch of {rows.samples} samples fails"):
                    assigned = assign(rows)
            if assigned is None:
                return BatchSlices.contiguous(rows.samples, trainers)
            found = BatchSlices.of(assigned, rows.samples, trainers)
            if found.micro_batches is not None and not self.has_micro_batches:
                raise PlanError(f"{name} gives micro-batches, and does not say so: set has_micro_batches = True")
            return found

        return slices

    @abstractmethod
    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A new planner. The oracle makes several: to measure the cache for windows of several lengths, then to plan.

        Args:
            window: the window that the method `window` gave, or a shorter one, down to `Window(1, 1)`.
            shared_capacity: slots below this number mean the same row on every trainer.
            private_capacity: further slots of each trainer that are its own.

        Raises:
            ConfigError: it has no planner for these settings.
        """

    def expected_slots(self, beginning: CacheSlots) -> CacheSlots:
        """The slots of a run's cache, if its first batches need those of `beginning`: by default a quarter more.

        There are never more than rows in the tables: a row is fetched again only once it has been written back, so it
        never has two slots.
        """
        return CacheSlots(*(min(self.facts.total_rows, with_spare(slots)) for slots in beginning[:2]))

    def require_sound_additions(self, plan: BatchPlan) -> None:
        """Check that a plan adds rows only where that is declared, and says where each of them is.

        Raises:
            PlanError: `adds_rows` is not set; `add_rows`, `add_slots` and `base_slots` do not have the same length; or
                more rows come into bases than are fetched.
        """
        for trainer, part in enumerate(plan.trainers):
            if part.pulled.first < 0:
                raise PlanError(
                    f"batch {plan.shared.batch}: trainer {trainer}: new_slots and merged_slots are those of "
                    f"{part.fetch_rows.size - part.pulled.first} rows, and {part.fetch_rows.size} are fetched"
                )
        names = ("add_rows", "add_slots", "base_slots")
        if not any_has(plan.trainers, names):
            return
        for trainer, part in enumerate(plan.trainers):
            arrays = {name: getattr(part, name) for name in names}
            lengths = {name: "none" if array is None else array.size for name, array in arrays.items()}
            if set(lengths.values()) == {"none"}:
                continue
            where = f"batch {plan.shared.batch}: trainer {trainer}"
            if not self.adds_rows:
                raise PlanError(f"{where} adds rows, and {type(self).__name__} does not say so: set adds_rows = True")
            if len(set(lengths.values())) > 1:
                raise PlanError(f"{where}: add_rows, add_slots and base_slots differ in length: {lengths}")

    def window(self, wanted: Window) -> Window:
        """The longest window that it uses where `lookahead.batches` and `lookahead.group` ask for `wanted`.

        The engine shortens it where `cache.rows` are too few. A policy that reads no batch ahead returns
        `Window(1, 1)`, and there is nothing to shorten.
        """
        return wanted

    def least_bytes(self, window: Window, most_batches: int) -> int:  # noqa: ARG002
        """Bytes that a planner takes at least, checked before one is made; by default those of a `RulePlanner`.

        Args:
            window: as for `planner`.
            most_batches: most batches of a segment; a window never holds more.
        """
        return state_bytes(self.facts.total_rows, verify=self.facts.verify)

    def remark(self, most_batches: int) -> str:  # noqa: ARG002
        """A warning to the user that it does not do all it could in this run; empty if there is none.

        Args:
            most_batches: most batches of a segment of training.
        """
        return ""

    @property
    def smaller_state(self) -> str:
        """The setting, as on a command line, with which its planner takes less memory for large tables; empty: none.

        Error messages name it where the memory does not suffice.
        """
        return ""


def name_of(policy: Policy) -> str:
    """The class of a policy as `package.module:Class`, the form in which `policy.name` names a user's own."""
    return f"{type(policy).__module__}:{type(policy).__qualname__}"


def with_spare(slots: int) -> int:
    """The slots that a run is expected to need, if its beginning needs `slots`: a quarter more."""
    return slots + -(-slots // _SPARE_PART)
