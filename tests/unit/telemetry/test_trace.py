import json
import threading

import pytest

from bagpipe_hpc.telemetry import trace as trace_module
from bagpipe_hpc.telemetry.trace import Trace, write_trace


def spans(events: list[dict]) -> list[dict]:
    return [event for event in events if event["ph"] == "X"]


def test_a_disabled_trace_keeps_sums_alone():
    trace = Trace(enabled=False)
    with trace.span("work"):
        pass
    for end_s in (1.0, 1.5):
        trace.add("more work", 0.5, end_s, "mover")
    assert spans(trace.events(0, "oracle 0")) == []
    sums_s = trace.sums_s()
    assert sums_s.pop("work") > 0
    assert sums_s == {"more work": 1.5}


def test_times_count_from_the_start_in_microseconds():
    trace = Trace(enabled=True)
    trace.start()
    zero = trace._zero_s
    trace.add("fetch", zero + 0.5, zero + 0.75, "mover", rows=12)
    (event,) = spans(trace.events(3, "trainer 0"))
    assert (event["name"], event["pid"], event["ts"], event["dur"], event["args"]) == (
        "fetch",
        3,
        pytest.approx(500_000),
        pytest.approx(250_000),
        {"rows": 12},
    )


def test_each_thread_has_a_line_of_its_own_and_the_main_one_comes_first():
    trace = Trace(enabled=True)
    worker = threading.Thread(target=lambda: trace.add("fetch", 0, 1, threading.current_thread().name), name="mover")
    worker.start()
    worker.join()
    with trace.span("step"):
        pass
    events = trace.events(2, "trainer 0")
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {0: "compute", 1: "mover"}
    assert {event["name"]: event["tid"] for event in spans(events)} == {"step": 0, "fetch": 1}


def test_a_span_within_another_is_under_way_until_it_ends():
    trace = Trace(enabled=True)
    with trace.span("step"):
        with trace.span("update rows", rows=3):
            assert trace.under_way()[0] == ["update rows"]
        assert trace.under_way()[0] == ["step"]
    assert trace.under_way() == ([], 0.0)
    found = {event["name"]: event["args"] for event in spans(trace.events(0, ""))}
    assert found == {"update rows": {"rows": 3}, "step": {}}


def test_a_span_is_recorded_though_its_body_fails():
    trace = Trace(enabled=True)
    with pytest.raises(KeyError), trace.span("step"):
        raise KeyError
    assert [event["name"] for event in spans(trace.events(0, ""))] == ["step"]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(trace_module, "MOST_SPANS", 3)
    trace = Trace(enabled=True)
    for _ in range(5):
        with trace.span("step"):
            pass
    assert len(spans(trace.events(0, ""))) == 3
    assert trace.dropped == 2


def test_the_file_holds_the_events_of_all_ranks(tmp_path):
    first, second = Trace(enabled=True), Trace(enabled=True)
    for trace in (first, second):
        with trace.span("work"):
            pass
    path = tmp_path / "new folder" / "trace.json"
    write_trace(path, [first.events(0, "oracle 0"), second.events(1, "server 0")])
    content = json.loads(path.read_text())
    assert {event["pid"] for event in spans(content["traceEvents"])} == {0, 1}
    assert [path.name for path in path.parent.iterdir()] == ["trace.json"]
