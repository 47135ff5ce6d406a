"""Measured and predicted steps side by side: what calibrates, what is compared, which file is read."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report
from benchmarks import simulate
from benchmarks.jobs import links
from benchmarks.jobs.links import LINKS
from benchmarks.simulate import calibrating, cluster_of, compare
from benchmarks.step import benchmark as step


def job(link: str, lookahead: int, **changes: Any) -> dict[str, Any]:
    """As benchmark `step` writes it."""
    measured = {"step_ms": 20.0, "compute_ms": 15.0, "rows_share": 0.1, "reductions_share": 0.15}
    return {"workload": "quickstart", "link": link, "trainers": 1, "spread": False, "lookahead": lookahead} | (
        measured | changes
    )


def test_the_job_that_waits_least_calibrates() -> None:
    jobs = [job("native", 50), job("10gbit", 1), job("10gbit", 10), job("1gbit", 50)]
    assert calibrating(jobs) is jobs[2]
    assert calibrating(jobs[:1]) is jobs[0]


def test_clusters_of_bench_step() -> None:
    one_host = cluster_of(LINKS["native"], 2, 1e-5, spread=False)
    assert one_host.is_one_host
    behind = cluster_of(LINKS["1gbit"], 3, 1e-5, spread=False)
    assert (behind.server_hosts, behind.trainers_per_host, behind.reduces_over_links) == (1, 3, False)
    assert behind.bytes_per_s == 125e6
    assert behind.latency_s == pytest.approx(570e-6)
    assert cluster_of(LINKS["1gbit"], 3, 1e-5, spread=True).reduces_over_links
    assert cluster_of(LINKS["1gbit"], 3, 1e-5, spread=True, server_hosts=4).server_hosts == 4
    assert cluster_of(LINKS["native"], 3, 1e-5, spread=True, server_hosts=4).is_one_host


@pytest.fixture
def small_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings with which the shards of 20 steps are made quickly."""
    monkeypatch.setattr(step, "FOLDER", tmp_path)
    return ["train.batch_size=32"]


def test_jobs_are_predicted_from_the_one_that_calibrates(small_shards: list[str]) -> None:
    jobs = [job("10gbit", 1, step_ms=25.0), job("10gbit", 4, rows_share=0.0), job("1gbit", 4)]
    cells = compare({"jobs": jobs, "measured_steps": 20, "set": small_shards})
    assert [cell["calibrates"] for cell in cells] == [False, True, False]
    assert [cell["measured_ms"] for cell in cells] == [25.0, 20.0, 20.0]
    # 20 ms without waiting are 20 ms of computing, behind which these few rows hide.
    assert [cell["predicted_ms"] for cell in cells[1:]] == pytest.approx([20.0, 20.0])
    assert cells[0]["predicted_ms"] > 20.0
    assert cells[0]["predicted_rows_share"] > 0.01
    assert cells[0]["error"] == pytest.approx(cells[0]["predicted_ms"] / 25.0 - 1, abs=1e-4)
    json.dumps(cells)


def test_the_last_line_of_bench_step_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"benchmark": "step", "jobs": [1]}\n{"benchmark": "step", "jobs": [2]}\n{"benchmark": "store"}\n')
    assert simulate._from_file(path, Report("simulate")) == [{"benchmark": "step", "jobs": [2]}]
    path.write_text('{"benchmark": "store"}\n')
    with pytest.raises(ConfigError, match="no line of benchmark step"):
        simulate._from_file(path, Report("simulate"))


@pytest.mark.parametrize("quick", [True, False])
def test_links_that_are_left_out_are_said(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[list[str]] = []

    def run(arguments: argparse.Namespace) -> Report:
        measured.append(arguments.link)
        return Report("step", {"jobs": []})

    monkeypatch.setattr(links, "refusal", lambda link: "needs root" if link.name == "1gbit" else None)
    monkeypatch.setattr(step, "run", run)
    report = simulate.run(argparse.Namespace(measured=None, runs=1, quick=quick))
    assert measured == ([] if quick else [["native", "10gbit"], ["10gbit"]])
    assert report.lines[0] == "link 1gbit left out: needs root"
    assert report.figures["links_left_out"] == ["1gbit"]


def test_links_that_a_file_lacks_are_said(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"benchmark": "step", "jobs": [], "links_left_out": ["10gbit"]}\n')
    report = simulate.run(argparse.Namespace(measured=path, runs=1))
    assert report.lines[0] == f"link 10gbit left out: {path} was measured without it"


def test_a_report_says_how_far_predictions_are_off(tmp_path: Path, small_shards: list[str]) -> None:
    path = tmp_path / "lines.jsonl"
    line = {"benchmark": "step", "jobs": [job("10gbit", 4), job("1gbit", 4)], "measured_steps": 20, "set": small_shards}
    path.write_text(json.dumps(line) + "\n")
    report = simulate.run(argparse.Namespace(measured=path, runs=1))
    assert len(report.figures["jobs"]) == 2
    assert report.figures["median_error"] == report.figures["largest_error"] < 0.2
    assert any(line.startswith("median error") for line in report.lines)
