"""Jobs of different kinds are lines of their own."""

from typing import Any

import pytest

from benchmarks.plots.saved_results import jobs_of, sweeps


def job(link: str, lookahead: int, *, spread: bool, trainers: int = 2, **more: Any) -> dict[str, Any]:
    own = {"workload": "quickstart", "link": link, "trainers": trainers, "spread": spread, "lookahead": lookahead}
    return own | more


def test_trainers_with_a_host_each_are_a_line_of_their_own() -> None:
    jobs = [job("1gbit", lookahead, spread=spread) for spread in (True, False) for lookahead in (10, 1)]
    others = [job("1gbit", 1, spread=False, trainers=4)]
    (lines,) = sweeps([*jobs, *others]).values()
    assert {title: [(one["lookahead"], one["spread"]) for one in line] for title, line in lines.items()} == {
        "1 Gbit/s, 0.5 ms, a host each": [(1, True), (10, True)],
        "1 Gbit/s, 0.5 ms": [(1, False), (10, False)],
    }


@pytest.mark.parametrize("spread", [True, False])
def test_on_one_host_the_last_measurement_counts(spread: bool) -> None:
    jobs = [job("native", 1, spread=not spread, rate=1), job("native", 1, spread=spread, rate=2)]
    lines = [{"jobs": [one]} for one in jobs]
    assert [one["rate"] for one in jobs_of(lines)] == [2]
    assert list(sweeps(jobs_of(lines))["quickstart"]) == ["one host"]
