"""The event simulator on cases that can be worked out by hand."""

import math

import pytest

from bagpipe_hpc.simulation.events import Event, Process, Simulation, Sleep, Transfer, fair_rates


@pytest.mark.parametrize(
    ("flows", "rates"),
    [
        ([], []),
        ([("a",)], [10.0]),
        ([("a",), ("a",)], [5.0, 5.0]),
        ([("a", "b"), ("a",)], [2.0, 8.0]),  # b holds the first to 2, the second takes what is left of a
        ([("a", "b"), ("a", "b"), ("a",)], [1.0, 1.0, 8.0]),
        ([("free",), ("a", "free")], [math.inf, 10.0]),
    ],
)
def test_links_are_shared_fairly(flows: list[tuple[str, ...]], rates: list[float]) -> None:
    assert fair_rates(flows, {"a": 10.0, "b": 2.0, "free": math.inf}) == rates


class Recorder:
    """Notes when processes reach their marks."""

    def __init__(self, **capacities: float) -> None:
        self.simulation = Simulation(capacities)
        self.times: dict[str, float] = {}

    def process(self, name: str, *requests: Sleep | Transfer | Event, happens: Event | None = None) -> None:
        def run() -> Process:
            yield from requests
            self.times[name] = self.simulation.now_s
            if happens:
                self.simulation.happen(happens)

        self.simulation.start(run())

    def run(self) -> dict[str, float]:
        self.simulation.run()
        return self.times


def test_sleeps_pass_beside_each_other() -> None:
    recorder = Recorder()
    recorder.process("a", Sleep(1.0), Sleep(2.0))
    recorder.process("b", Sleep(2.5))
    assert recorder.run() == {"b": 2.5, "a": 3.0}


def test_a_transfer_takes_its_bytes_over_the_rate() -> None:
    recorder = Recorder(link=10.0)
    recorder.process("a", Transfer(25.0, ("link",)))
    recorder.process("nothing", Transfer(0.0, ("link",)))
    assert recorder.run() == {"nothing": 0.0, "a": 2.5}


def test_transfers_slow_each_other_down_while_they_overlap() -> None:
    """Until 2 s, a has the link alone: 20 of 50 bytes. Then both get 5 a second: b ends at 6 s, a 1 s later."""
    recorder = Recorder(link=10.0)
    recorder.process("a", Transfer(50.0, ("link",)))
    recorder.process("b", Sleep(2.0), Transfer(20.0, ("link",)))
    assert recorder.run() == {"b": 6.0, "a": 7.0}


def test_both_directions_of_a_link_are_apart() -> None:
    recorder = Recorder(up=10.0, down=10.0)
    recorder.process("a", Transfer(10.0, ("up",)))
    recorder.process("b", Transfer(10.0, ("down",)))
    assert recorder.run() == {"a": 1.0, "b": 1.0}


def test_a_link_without_limit_takes_no_time() -> None:
    recorder = Recorder(free=math.inf)
    recorder.process("a", Transfer(1e12, ("free",)), Sleep(1.0))
    assert recorder.run() == {"a": 1.0}


def test_events_are_waited_for() -> None:
    recorder = Recorder()
    event = Event()
    recorder.process("late", Sleep(3.0), happens=event)
    recorder.process("waits", event)
    recorder.process("comes after", Sleep(5.0), event)
    assert recorder.run() == {"late": 3.0, "waits": 3.0, "comes after": 5.0}


def test_a_process_whose_event_never_happens_is_left() -> None:
    recorder = Recorder()
    recorder.process("waits", Event())
    recorder.process("a", Sleep(1.0))
    assert recorder.run() == {"a": 1.0}
