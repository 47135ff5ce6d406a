"""Plans a run for several numbers of trainers and windows, and counts what the plans ask for, without any rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, tee

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import SharedPlan
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.capacity import CacheNeed, within_memory
from bagpipe_hpc.planning.groups import slots_by_group
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.prepare import require_weights_alone
from bagpipe_hpc.preparation.window_choice import segments_to_measure
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.simulation.batch_load import BatchLoad
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.forecast.pace import Pace, Tell
from bagpipe_hpc.tools.policy_comparison.traffic import Traffic, TrafficCount

_STEADY_BATCHES = 100
"""Batches of a segment whose time is predicted, besides a window before and after them."""


@dataclass(frozen=True)
class LinkBytes:
    """Bytes of rows, and of their numbers, that come and go over a link for a batch, on average.

    In exchanges between trainers as much comes as goes. Rows that only pass through a trainer on their way over a grid
    do not count.

    Attributes:
        come: into the host.
        go: out of it.
    """

    come: float
    go: float

    @property
    def both(self) -> float:
        """Bytes of both directions."""
        return self.come + self.go


@dataclass(frozen=True)
class Outlook:
    """What a run with one number of trainers and one window does, from its plans.

    Attributes:
        run: the run, with the window that was asked for among its settings.
        trainers: number of trainers T.
        need: the window that it uses, and the most slots of the caches that its plans use at once.
        sharing: where rows live that several trainers use.
        smaller_planner: as in `Need`.
        traffic: what a trainer moves for a batch.
        loads: loads of the first plans of the longest training segment, as many as show a steady state, and of the
            closing plan; empty where the segment is too short, or rows have several widths.
    """

    run: Run
    trainers: int
    need: CacheNeed
    sharing: str
    smaller_planner: str
    traffic: Traffic
    loads: tuple[BatchLoad, ...] = field(repr=False)

    @property
    def lookahead(self) -> int:
        """Batches of the window."""
        return self.need.window.lookahead

    @property
    def trainer_link(self) -> LinkBytes:
        """What a trainer's link carries for a batch."""
        of = self.traffic.bytes
        between = of["now"] + of["later"] + of["copied"] + of["sent_home"]
        return LinkBytes(of["fetched"] + between, self._to_servers + between)

    def server_link(self, nodes: int) -> LinkBytes:
        """What the link of each of `nodes` server nodes carries for a batch, if rows are spread evenly."""
        of, share = self.traffic.bytes, self.trainers / max(1, nodes)
        return LinkBytes(share * self._to_servers, share * of["fetched"])

    @property
    def _to_servers(self) -> float:
        """Bytes that a trainer sends to servers: rows that it writes, and numbers of rows that it writes or fetches."""
        of = self.traffic.bytes
        return of["written"] + of["added"] + self.traffic.number_bytes

    @property
    def fits(self) -> bool:
        """Whether the rows fit into `cache.rows`, if that is set; where they do not, a run would cut the window."""
        limit = self.run.config.cache.rows
        return not limit or self.need.total_rows <= limit


def plan_all(
    run: Run, trainers: Sequence[int], lookaheads: Sequence[int], most_batches: int, tell: Tell
) -> list[Outlook]:
    """Plan every combination, in one pass over the data, or in as few as the memory of their planners allows.

    Args:
        run: the run, with checked settings; its `lookahead.group` applies only to its own window.
        trainers: numbers of trainers.
        lookaheads: windows, in batches.
        most_batches: most batches of each segment; 0 for all, which makes the results exact.
        tell: called now and then with a line about progress.

    Returns:
        The outlook of each combination, by trainers, then windows. Windows that come to the same, such as those longer
        than the longest segment, are listed once.

    Raises:
        CapacityError, ConfigError: as for a run that starts.
    """
    cases: dict[tuple[int, int], _Case] = {}
    for number in trainers:
        for lookahead in lookaheads:
            case = _Case(_with_lookahead(run, lookahead), number, most_batches)
            cases.setdefault((number, case.window.lookahead), case)
    planned: list[Outlook] = []
    waiting = list(cases.values())
    while waiting:
        together = _as_many_as_fit(waiting)
        waiting = waiting[len(together) :]
        planned += _plan_together(together, run, most_batches, tell)
    return planned


def _with_lookahead(run: Run, lookahead: int) -> Run:
    """The same run with another window, in groups of the usual size."""
    asked = run.config.lookahead
    if lookahead != asked.batches:
        asked = replace(asked, batches=lookahead, group=0)
    return replace(run, config=replace(run.config, lookahead=asked))


class _Case:
    """One number of trainers and one window.

    Args:
        run: the run, with this window.
        trainers: number of trainers T.
        most_batches: most batches of each segment that are planned.
    """

    def __init__(self, run: Run, trainers: int, most_batches: int) -> None:
        self.run, self.trainers = run, trainers
        self.policy = run.policy(trainers)
        require_weights_alone(run.config)
        self.window = self.policy.window(run.window)
        self.least_bytes = self.policy.least_bytes(self.window, run.longest_segment)
        self._counted = TrafficCount(run, trainers)
        self._loads: list[BatchLoad] = []
        longest = max((one for one in run.schedule if one.is_training), key=lambda one: one.batches, default=None)
        self._timed = longest if len(run.groups) == 1 else None
        batches = min(longest.batches, most_batches or longest.batches) if longest else 0
        self._steady = max(0, min(_STEADY_BATCHES, batches - 2 * self.window.lookahead))

    def plans(self, planner: Planner, segment: Segment, batches: Iterator[Bags], memory_bytes: int) -> Iterator[None]:
        """Plan a segment and count its plans, one at each step."""
        read = self._counted.reading(within_memory(planner, batches, memory_bytes))
        slicing, keep = self.policy.start_slicing(), self.policy.keeping(segment)
        plans = plan_segment(planner, read, slicing, keep, training=segment.is_training, first_step=segment.first_step)
        for plan in self._counted.planning(plans) if segment.is_training else plans:
            if segment.is_training:
                self._counted.add(plan)
            if self._tells_of_time(segment, plan.shared):
                self._loads.append(BatchLoad.of_plan(plan))
            yield

    def _tells_of_time(self, segment: Segment, plan: SharedPlan) -> bool:
        """Whether a plan is one of those whose time is predicted."""
        if segment is not self._timed or not self._steady:
            return False
        return plan.is_closing or plan.batch < 2 * self.window.lookahead + self._steady

    def outlook(self, planner: Planner, *, is_exact: bool) -> Outlook:
        """What was found, as an outlook."""
        size = planner.size()
        taken = size.state_bytes + size.window_bytes
        need = CacheNeed(self.window, slots_by_group(planner), taken, is_exact)
        traffic = self._counted.traffic(self.window.lookahead, need.total_rows)
        sharing = self.policy.whole.facts.sharing
        smaller = self.policy.smaller_state
        return Outlook(self.run, self.trainers, need, sharing, smaller, traffic, tuple(self._loads))


def _as_many_as_fit(cases: Sequence[_Case]) -> list[_Case]:
    """The first cases whose planners fit into half of the free memory together; at least one."""
    left = free_bytes() // 2
    together: list[_Case] = []
    for case in cases:
        left -= case.least_bytes
        if together and left < 0:
            break
        together.append(case)
    return together


def _share(free: int, least_bytes: int, wanted: int, cases: int) -> int:
    """Memory for one of several planners: half is divided equally, half in proportion to what each takes at least."""
    return free // 2 // cases + (free // 2 * least_bytes // wanted if wanted else free // 2 // cases)


def _plan_together(cases: Sequence[_Case], run: Run, most_batches: int, tell: Tell) -> list[Outlook]:
    free, wanted = free_bytes(), sum(case.least_bytes for case in cases)
    for case in cases:
        case.policy.require_memory(case.window, run.longest_segment, free)
    planners = [case.policy.planner(case.window) for case in cases]
    segments = segments_to_measure(run)
    total = sum(min(segment.batches, most_batches or segment.batches) for segment in segments)
    with Pace(f"planning {counted(len(cases), 'window')} at once", total, tell) as pace:
        for segment in segments:
            batches = tee(islice(run.batches(segment), most_batches or None), len(cases))
            steps = [
                case.plans(planner, segment, own, _share(free, case.least_bytes, wanted, len(cases)))
                for case, planner, own in zip(cases, planners, batches, strict=True)
            ]
            for number, _ in enumerate(zip(*steps, strict=True)):
                pace.advance(int(number > 0))  # one plan more than batches: the closing one
    exact = not most_batches or all(segment.batches <= most_batches for segment in segments)
    return [case.outlook(planner, is_exact=exact) for case, planner in zip(cases, planners, strict=True)]
