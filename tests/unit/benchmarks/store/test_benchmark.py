"""`python -m benchmarks store`: what is measured by default, its figures, and a tiny measurement from start to end."""

import argparse
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report
from benchmarks.jobs import links
from benchmarks.jobs.links import LINKS
from benchmarks.store import benchmark as store
from benchmarks.store.ranks import Measurement, StoreSettings


def arguments(**changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {"link": None, "servers": None, "trainers": None, "row_bytes": None, "ways": None}
    values |= {"rows": 1000, "poll_us": 200, "backend": "auto", "quick": True, "runs": 2}
    return argparse.Namespace(**values | changes)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, StoreSettings]]:
    """What would be measured, on which link; every operation of the store is half as fast as the plain one."""
    seen: list[tuple[str, StoreSettings]] = []

    def measure(settings: StoreSettings, link: store.Link) -> list[Measurement]:
        seen.append((link.name, settings))
        return [
            {
                "row_bytes": row_bytes,
                "way": way,
                "rows_per_s": {name: [1e6, 3e6] for name in store._PLAIN[way]}
                | {name: [2e6, 6e6] for name in store._PLAIN[way].values()},
                "cpu_us_per_row": {name: [0.25, 0.75] for name in (*store._PLAIN[way], *store._PLAIN[way].values())},
            }
            for row_bytes in settings.row_bytes
            for way in settings.ways
        ]

    monkeypatch.setattr(store, "_measure", measure)
    monkeypatch.setattr(links, "refusal", lambda link: "no root" if link.name == "10gbit" else None)
    return seen


def test_all_worlds_of_one_host_and_a_pair_on_each_link(measured: list[tuple[str, StoreSettings]]) -> None:
    report = store.run(arguments(quick=False))
    assert [(link, settings.servers, settings.trainers) for link, settings in measured] == [
        ("native", 1, 1),
        ("native", 1, 2),
        ("native", 2, 1),
        ("native", 2, 2),
        ("1gbit", 1, 1),
    ]
    assert [list(settings.ways) for _, settings in measured] == [["loads", "messages"]] * 4 + [["messages"]]
    assert "link 10gbit left out: no root" in report.lines
    assert report.figures["links_left_out"] == ["10gbit"]


def test_on_the_nodes_of_a_job_rows_travel_by_messages(measured: list[tuple[str, StoreSettings]]) -> None:
    report = store.run(arguments(link=["nodes"], quick=False))
    assert [(link, settings.servers, settings.trainers, settings.ways) for link, settings in measured] == [
        ("nodes", 1, 1, ["messages"])
    ]
    assert {figure["link"] for figure in report.figures["measured"]} == {"nodes"}


def test_figures_are_medians_and_fractions_within_a_run(measured: list[tuple[str, StoreSettings]]) -> None:
    report = store.run(arguments(link=["native"], servers=[2], row_bytes=[256], ways=["loads"]))
    assert report.figures["measured"] == [
        {
            "row_bytes": 256,
            "way": "loads",
            "link": "native",
            "servers": 2,
            "trainers": 1,
            "get_rows_per_s": 2e6,
            "get_gb_per_s": 0.512,
            "take_rows_per_s": 4e6,
            "get_fraction_of_take": 0.5,
            "put_rows_per_s": 2e6,
            "put_gb_per_s": 0.512,
            "assign_rows_per_s": 4e6,
            "put_fraction_of_assign": 0.5,
            "add_rows_per_s": 2e6,
            "add_gb_per_s": 0.512,
            "add_fraction_of_assign": 0.5,
        }
        | {f"{name}_cpu_us_per_row": 0.5 for name in ("get", "put", "add", "take", "assign")}
    ]
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"row_bytes": [66]}, "--row-bytes 66: .* use a multiple of 4"),
        ({"row_bytes": [1024], "rows": 200_000}, "--rows 200000: .* is 131072 rows of 1024 bytes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    changes: dict[str, Any], problem: str, measured: list[tuple[str, StoreSettings]]
) -> None:
    with pytest.raises(ConfigError, match=problem):
        store.run(arguments(link=["native"], **changes))
    assert not measured


@pytest.mark.slow
def test_a_tiny_measurement() -> None:
    """Two servers and two trainers, all ways; 100 rows of 64 bytes a call."""
    settings = StoreSettings(2, 2, [64], ["loads", "messages", "one_sided"], 100, 2, 64 * 500, 2, 200, "auto")
    found = store._measure(settings, LINKS["native"])
    assert [(entry["row_bytes"], entry["way"]) for entry in found] == [(64, way) for way in settings.ways]
    for entry in found:
        for figures in (entry["rows_per_s"], entry["cpu_us_per_row"]):
            assert set(figures) == {"get", "put", "add", *store._PLAIN[entry["way"]].values()}
            assert all(len(of_runs) == 2 and min(of_runs) > 0 for of_runs in figures.values())
    store._add_world(Report("store", {"measured": []}), LINKS["native"], settings, found)
