"""`python -m benchmarks step`: which jobs it runs, its figures and tables, and a tiny measurement from start to end."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks.jobs.links import LINKS
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.step import benchmark as step
from benchmarks.step.benchmark import job_figures, jobs_of
from benchmarks.step.figures import StepFigures
from benchmarks.step.table import HEADINGS, table_rows
from benchmarks.step.training_job import Job, JobResult
from tests.cluster.emulation import require_emulation

QUICKSTART = WORKLOADS["quickstart"]


def arguments(**changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {"workload": None, "link": None, "trainers": None, "lookahead": None, "spread": False}
    values |= {"steps": None, "quiet_s": None, "others_at_most": 1.0, "set": [], "quick": False, "runs": 1}
    return argparse.Namespace(**values | changes)


def windows(jobs: list[Job]) -> list[tuple[str, int, int]]:
    return [(job.link.name, job.trainers, job.lookahead) for job in jobs]


def test_all_windows_are_measured_with_two_trainers() -> None:
    jobs = jobs_of(QUICKSTART, [LINKS["native"]], 40, arguments())
    assert windows(jobs) == [
        ("native", 1, 1),
        ("native", 1, 40),
        *(("native", 2, lookahead) for lookahead in (1, 2, 10, 40, 50, 200)),
        ("native", 4, 1),
        ("native", 4, 40),
    ]


def test_what_is_asked_for_is_measured() -> None:
    asked = arguments(trainers=[1, 4], lookahead=[1, 8], spread=True)
    jobs = jobs_of(QUICKSTART, [LINKS["1gbit"]], 40, asked)
    assert windows(jobs) == [("1gbit", 1, 1), ("1gbit", 1, 8), ("1gbit", 4, 1), ("1gbit", 4, 8)]
    assert all(job.spread for job in jobs)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="--link 2gbit: use one of native, 10gbit, 1gbit"):
        step.run(arguments(link=["2gbit"]))
    with pytest.raises(ConfigError, match="--workload x: use one of quickstart, embedding_bound"):
        step.run(arguments(link=["native"], workload=["x"]))


@pytest.mark.parametrize("key", ["lookahead.batches", "lookahead.group", "train.max_steps", "roles.servers"])
def test_what_a_job_sets_is_refused_before_anything_is_made(
    key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rows of the tables would say what was not run."""
    monkeypatch.setattr(step, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=rf"--set {key}=5: the benchmark sets {key} itself"):
        step.run(arguments(link=["native"], workload=["quickstart"], set=["train.seed=2", f"{key}=5"]))
    assert not list(tmp_path.iterdir())


def test_a_job_is_described_by_the_medians_of_its_runs() -> None:
    job = Job(QUICKSTART, LINKS["1gbit"], trainers=2, lookahead=40, spread=False)
    runs = [
        JobResult(
            StepFigures(step_ms, step_ms - 5, 2.0, 3.0, rows_fetched=1000.0, rows_written_back=500.0, rows_reduced=0.0),
            {"dense_weights": 10, "cache_rows": 77},
            others_share=0.25,
        )
        for step_ms in (20.0, 40.0, 25.0)
    ]
    figures = job_figures(job, runs, QUICKSTART.config([]))
    assert figures["samples_per_s"] == 2048 / 0.025
    assert figures["samples_per_s_of_runs"] == [102_400, 51_200, 81_920]
    assert (figures["step_ms"], figures["compute_ms"]) == (25.0, 20.0)
    assert (figures["compute_share"], figures["rows_share"], figures["reductions_share"]) == (0.8, 0.08, 0.12)
    assert figures["row_bytes_on_link"] == 1000 * 17 * 4  # 16 weights and the accumulator
    assert figures["link_ms"] == pytest.approx(68_000 / 125e6 * 1e3)
    json.dumps(figures)


def test_ranks_are_placed_in_their_order() -> None:
    job = Job(QUICKSTART, LINKS["1gbit"], trainers=3, lookahead=1, spread=False)
    assert (job.ranks_of_hosts, job.server_hosts) == ([3, 3], 1)
    assert replace(job, spread=True).ranks_of_hosts == [3, 1, 1, 1]
    apart = replace(job, spread=True, servers=4, servers_apart=True)
    assert (apart.ranks_of_hosts, apart.server_hosts) == ([1, 1, 1, 1, 1, 1, 1, 1], 4)
    assert replace(apart, link=LINKS["native"]).ranks_of_hosts == [8]


def cell(lookahead: int, rate: float, link_ms: float, trainers: int = 2) -> dict[str, Any]:
    """A recorded entry of the JSON line."""
    return {
        "workload": "quickstart",
        "link": "1gbit",
        "trainers": trainers,
        "spread": True,
        "lookahead": lookahead,
        "samples_per_s": rate,
        "samples_per_s_of_runs": [rate - 5, rate + 5],
        "step_ms": 40.0,
        "compute_ms": 30.0,
        "compute_share": 0.75,
        "reductions_share": 0.05,
        "rows_share": 0.2,
        "rows_fetched": 1200,
        "rows_written_back": 800,
        "row_bytes_on_link": 1_000_000,
        "reduction_bytes_on_link": 500_000,
        "link_ms": link_ms,
    }


def test_tables_compare_with_the_first_window() -> None:
    tables = table_rows([cell(1, 1000, 31.0), cell(40, 5500, 30.0), cell(40, 2000, 1.0, trainers=1)])
    assert list(tables) == ["quickstart, 1gbit, 2 trainers, a host each", "quickstart, 1gbit, 1 trainer"]
    first, second = (dict(zip(HEADINGS, row, strict=True)) for row in next(iter(tables.values())))
    assert (first["window"], first["to L = 1"], first["hideable"]) == ("L = 1", "1.00", "no")
    assert (second["to L = 1"], second["hideable"]) == ("5.50", "yes")
    assert (second["link MB"], second["lowest - highest"], second["rows"]) == ("1.50", "5,495 - 5,505", "20.0%")


def test_without_the_first_window_there_is_no_ratio() -> None:
    (rows,) = table_rows([cell(40, 5500, 30.0)]).values()
    assert dict(zip(HEADINGS, rows[0], strict=True))["to L = 1"] == "-"


@pytest.mark.slow
@pytest.mark.parametrize("link", ["native", "1gbit"])
def test_a_tiny_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str) -> None:
    if link != "native":
        require_emulation(*LINKS[link].options())
    monkeypatch.setattr(step, "FOLDER", tmp_path)
    small = ["train.batch_size=64", "model.top_mlp=[8]", "model.bottom_mlp=[8]"]
    asked = arguments(workload=["quickstart"], link=[link], trainers=[1], lookahead=[4], steps=20, set=small)
    (figures,) = step.run(asked).figures["jobs"]
    assert (figures["link"], figures["trainers"], figures["lookahead"]) == (link, 1, 4)
    assert figures["samples_per_s"] == pytest.approx(64 / figures["step_ms"] * 1e3, rel=1e-3)
    shares = figures["compute_share"] + figures["rows_share"] + figures["reductions_share"]
    assert shares == pytest.approx(1.0, abs=0.001)
    assert 0 < figures["rows_fetched"] <= 64 * 26
    assert figures["rows_written_back"] > 0
    assert (figures["link_ms"] > 0) == (link != "native")
    assert not list(tmp_path.glob("tmp*"))
