"""`train.trace` draws every rank, and what it draws agrees with what the run did; so does `resources.json`."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from bagpipe_hpc.tools.monitoring.top import view
from tests.end_to_end.test_equality import train

STEPS = 54
SEGMENTS = 2
PLANS = STEPS + 2 * (3 + 1) + 2  # evaluations of three batches, and a closing plan for each of four segments


def _overlaps(spans: list[dict[str, Any]], rank: int) -> int:
    """In how many steps now gradients leave within the backward pass, and come behind it."""
    passes, travels = (
        [(span["ts"], span["ts"] + span["dur"]) for span in spans if span["pid"] == rank and span["name"] == name]
        for name in ("forward, backward", "now gradients")
    )
    pairs = zip(sorted(passes), sorted(travels), strict=True)
    return sum(begun < left < ended < come for (begun, ended), (left, come) in pairs)


def _waits_within(spans: list[dict[str, Any]], rank: int) -> int:
    """How many waits for copies of rows lie within a pass: layers that read no rows have been computed before."""
    waits, passes = (
        [(span["ts"], span["ts"] + span["dur"]) for span in spans if span["pid"] == rank and span["name"] == name]
        for name in ("copies of rows", "forward, backward")
    )
    return sum(any(begun < since and until < ended for begun, ended in passes) for since, until in waits)


@pytest.mark.slow
def test_all_ranks_are_drawn(
    config_path: Path, run_ranks: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    path = tmp_path / "out" / "trace.json"
    train(run_ranks, 4, config_path, [[f"train.output={tmp_path / 'out'}", f"train.trace={path}"]], tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    ranks = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert ranks == {"oracle 0": 0, "server 0": 1, "trainer 0": 2, "trainer 1": 3}
    spans = [event for event in events if event["ph"] == "X"]

    def count(rank: str, name: str) -> int:
        return sum(event["pid"] == ranks[rank] and event["name"] == name for event in spans)

    assert count("server 0", "fill") == 1
    assert count("oracle 0", "send") == PLANS
    for trainer in ("trainer 0", "trainer 1"):
        assert count(trainer, "forward, backward") == STEPS
        assert count(trainer, "wait for rows") == STEPS + SEGMENTS  # and for the closing plan of each
        assert count(trainer, "barrier") > 0
        assert _overlaps(spans, ranks[trainer]) == STEPS
        assert _waits_within(spans, ranks[trainer]) == STEPS
    moved = {
        name: sum(event["args"]["rows"] for event in spans if event["name"] == name) for name in ("fetch", "write back")
    }
    assert moved["fetch"] >= moved["write back"] > 0
    assert min(event["ts"] for event in spans) > -1e6

    seen = view(tmp_path / "out")
    assert [line.split("  ")[0] for line in seen.lines[3:]] == list(ranks)
    assert all("  ended  " in line for line in seen.lines[3:])
    assert [line.split()[6] for line in seen.lines[3:]] == [str(STEPS), "-", str(STEPS), str(STEPS)]

    used = json.loads((tmp_path / "out" / "resources.json").read_text())["ranks"]
    assert [f"{rank['role']} {rank['role_rank']}" for rank in used] == list(ranks)
    assert all(rank["peak_bytes"] > 10_000_000 and rank["processor_s"] > 0 for rank in used)
    for number, rank in enumerate(used):
        drawn: Counter[str] = Counter()
        for event in spans:
            if event["pid"] == number:
                drawn[event["name"]] += event["dur"] / 1e6
        assert rank["spans_s"] == pytest.approx(drawn, abs=1e-3)
