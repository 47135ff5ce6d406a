"""A small discrete-event simulator: processes that sleep, wait for each other, and send bytes over shared links.

A process is a generator that yields what it does next: `Sleep`, `Transfer` or an `Event`. Transfers under way at
the same time share each link's capacity fairly (max-min: none could get more without taking from one that has no more).
"""

import heapq
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True)
class Sleep:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class Transfer:
    """Send bytes along a path of links, all of which they occupy at the same time."""

    bytes: float
    links: tuple[str, ...]


class Event:
    """Something that happens once; a process that yields it goes on from then."""

    def __init__(self) -> None:
        self.has_happened = False
        self.waiting: list[Process] = []


Process = Generator[Sleep | Transfer | Event, None, None]


@dataclass
class _Flow:
    """A transfer under way."""

    process: Process
    left: float
    links: tuple[str, ...]
    rate: float = field(default=0.0)


class Simulation:
    """Runs processes in simulated time.

    Args:
        capacities: bytes a second of each link; infinity for one that never limits.

    Attributes:
        now_s: the simulated time.
    """

    def __init__(self, capacities: Mapping[str, float]) -> None:
        self._capacities = capacities
        self._runnable: deque[Process] = deque()
        self._sleeping: list[tuple[float, int, Process]] = []
        self._flows: list[_Flow] = []
        self._order = count()  # processes that wake up at the same time do so in the order in which they fell asleep
        self.now_s = 0.0

    def start(self, process: Process) -> None:
        """Let a process begin."""
        self._runnable.append(process)

    def happen(self, event: Event) -> None:
        """Wake the processes that wait for an event."""
        event.has_happened = True
        self._runnable.extend(event.waiting)
        event.waiting = []

    def run(self) -> None:
        """Run until no process can go on."""
        while True:
            while self._runnable:
                self._advance(self._runnable.popleft())
            if not (self._sleeping or self._flows):
                return
            self._pass_time()

    def _advance(self, process: Process) -> None:
        request = next(process, None)
        match request:
            case Sleep():
                heapq.heappush(self._sleeping, (self.now_s + request.seconds, next(self._order), process))
            case Transfer():
                self._flows.append(_Flow(process, request.bytes, request.links))
            case Event(has_happened=True):
                self._runnable.append(process)
            case Event():
                request.waiting.append(process)

    def _pass_time(self) -> None:
        """Go to the next moment at which a sleep or a transfer ends."""
        self._share_links()
        ends_s = [self._sleeping[0][0]] if self._sleeping else []
        ends_s += [self.now_s + (flow.left / flow.rate if flow.left else 0.0) for flow in self._flows]
        end_s = min(ends_s)
        passed_s, self.now_s = end_s - self.now_s, end_s
        under_way = []
        for flow, flow_end_s in zip(self._flows, ends_s[-len(self._flows) :] if self._flows else [], strict=True):
            if flow_end_s <= end_s:
                self._runnable.append(flow.process)
            else:
                flow.left -= flow.rate * passed_s
                under_way.append(flow)
        self._flows = under_way
        while self._sleeping and self._sleeping[0][0] <= end_s:
            self._runnable.append(heapq.heappop(self._sleeping)[2])

    def _share_links(self) -> None:
        """Give every transfer its rate."""
        for flow, rate in zip(
            self._flows, fair_rates([flow.links for flow in self._flows], self._capacities), strict=True
        ):
            flow.rate = rate


def fair_rates(flows: Sequence[tuple[str, ...]], capacities: Mapping[str, float]) -> list[float]:
    """Max-min fair rates of flows over links.

    Args:
        flows: the links that each flow crosses, one at least.
        capacities: of each link.

    Returns:
        The rate of each flow.
    """
    rates = [0.0] * len(flows)
    left = dict(capacities)
    open_flows = set(range(len(flows)))
    while open_flows:
        crossing = {link: [flow for flow in open_flows if link in flows[flow]] for link in left}
        # The link with the least capacity for each of its flows limits them; what they leave elsewhere goes to others.
        share, limiting = min((left[link] / len(users), link) for link, users in crossing.items() if users)
        for flow in crossing[limiting]:
            rates[flow] = share
            open_flows.discard(flow)
            for link in flows[flow]:
                left[link] -= share
    return rates
