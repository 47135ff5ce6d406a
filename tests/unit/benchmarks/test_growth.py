"""Steps of several trainers are predicted from one trainer's step and the link alone."""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks import growth
from benchmarks.arguments import add_growth
from benchmarks.growth import compare, samples_of
from benchmarks.jobs.links import LINKS, SLOW_LINKS
from benchmarks.jobs.paced_dlrm import NAME as PACED_DLRM
from benchmarks.step import benchmark as step

DENSE_BYTES = 475_985 * 4
BYTES_PER_S = 0.1e9 / 8


def line(
    trainers: int, step_ms: float, others: float = 0.0, batch_size: int | None = None, lookahead: int = 4
) -> dict[str, Any]:
    """A run, as benchmark `step` writes it."""
    job = {"workload": "quickstart", "link": "100mbit", "trainers": trainers, "spread": True, "lookahead": lookahead}
    job["server_hosts"] = 1
    measured = {"step_ms": step_ms, "rows_share": 0.1, "reductions_share": 0.5, "others_share_of_runs": [others]}
    batch_size = batch_size or 32 * trainers
    overrides = [f"train.batch_size={batch_size}", "train.dense_sums=mpi"]
    return {"jobs": [job | measured], "batch_size": batch_size, "measured_steps": 20, "set": overrides}


@pytest.fixture(autouse=True)
def _small_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "FOLDER", tmp_path)


def test_sums_grow_as_the_link_says() -> None:
    lines = {1: [line(1, step_ms) for step_ms in (9.0, 12.0, 10.0)], 2: [line(2, 200.0, 0.3)], 4: [line(4, 300.0)]}
    alone, two, four = compare(lines)
    assert (alone["measured_ms"], alone["predicted_sums_ms"]) == (10.0, 0.0)
    assert alone["predicted_ms"] == pytest.approx(9.0)  # without waiting for rows
    # Two swap what they have, four send three quarters twice; the first parts leave while others are computed.
    swap_ms = DENSE_BYTES / BYTES_PER_S * 1e3
    assert two["predicted_ms"] == pytest.approx(9.0 + swap_ms, rel=0.08)
    assert four["predicted_ms"] == pytest.approx(9.0 + 1.5 * swap_ms, rel=0.08)
    assert four["predicted_sums_ms"] == pytest.approx(1.5 * swap_ms, rel=0.08)
    assert (two["measured_sums_ms"], two["measured_rows_ms"], two["others_share"]) == (100.0, 20.0, 0.3)
    assert four["error"] == pytest.approx(four["predicted_ms"] / 300.0 - 1, abs=1e-4)
    assert alone["measured_ms_of_runs"] == [9.0, 12.0, 10.0]


def test_who_shares_a_batch_computes_a_part_of_it() -> None:
    alone, two = compare({1: [line(1, 1000.0, batch_size=64)], 2: [line(2, 600.0, batch_size=64)]})
    swap_ms = DENSE_BYTES / BYTES_PER_S * 1e3
    assert alone["predicted_ms"] == pytest.approx(900.0)
    assert two["predicted_ms"] == pytest.approx(450.0 + two["predicted_sums_ms"] + two["predicted_rows_ms"])
    assert two["predicted_sums_ms"] <= swap_ms


def test_without_look_ahead_rows_are_waited_for() -> None:
    (alone,) = compare({1: [line(1, 10.0, lookahead=1)]})
    assert alone["predicted_rows_ms"] > 1.0
    assert alone["predicted_ms"] == pytest.approx(9.0 + alone["predicted_rows_ms"], abs=1e-3)


def test_batches_are_slices_or_shared() -> None:
    assert samples_of([1, 4], 64, None) == {1: 64, 4: 256}
    assert samples_of([1, 4], 64, 1024) == {1: 1024, 4: 1024}
    with pytest.raises(ConfigError, match=r"--batch 100: 3 trainers cannot share it; use a multiple of 3"):
        samples_of([1, 2, 3], 64, 100)


def arguments(*asked: str, quick: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_growth(parser)
    return parser.parse_args(asked, argparse.Namespace(runs=3, quick=quick))


@pytest.mark.parametrize(
    "setting", ["train.batch_size=5", "train.threads=5", "model.name=dcn", "model.us_per_sample=5", "roles.servers=5"]
)
def test_what_it_sets_itself_is_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_measure", lambda *_: pytest.fail("something was measured"))
    with pytest.raises(ConfigError, match=rf"--set {setting}: the benchmark sets {setting.partition('=')[0]} itself"):
        growth.run(arguments("--set", setting))


@pytest.mark.parametrize(("asked", "hosts"), [([], 1), (["--servers", "3"], 3)])
def test_jobs_take_turns_and_the_first_is_one_trainer_s(
    asked: list[str], hosts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured: list[tuple[int, int]] = []
    links = []

    def measure(job: Any, batch_size: int, _: argparse.Namespace) -> dict[str, Any]:
        assert (job.spread, job.lookahead, job.server_hosts, job.workload.name) == (True, 7, hosts, "quickstart")
        measured.append((job.trainers, batch_size))
        return line(job.trainers, 100.0 * len(measured), 0.3, batch_size)

    def usable(asked_for: list[Any], _: object) -> list[Any]:
        links.extend(asked_for)
        return asked_for

    folder = tmp_path / "above" / "folder"
    if asked:
        folder.mkdir(parents=True)
    monkeypatch.setattr(growth, "FOLDER", folder)
    monkeypatch.setattr(growth, "_measure", measure)
    monkeypatch.setattr(growth, "usable_links", usable)
    report = growth.run(arguments("--trainers", "2", "4", "2", "--lookahead", "7", "--us-per-sample", "9", *asked))
    there = [(1, 64), (2, 128), (4, 256)]
    assert measured == [*there, *reversed(there), *there]
    assert links == [(LINKS | SLOW_LINKS)["100mbit"]]
    assert folder.is_dir()
    jobs = report.figures.pop("jobs")
    assert [job["measured_ms_of_runs"] for job in jobs] == [[100, 600, 700], [200, 500, 800], [300, 400, 900]]
    assert report.figures == {
        "runs": 3,
        "link": "100mbit",
        "batch_sizes": {1: 64, 2: 128, 4: 256},
        "us_per_sample": 9,
        "workload": "quickstart",
        "servers": hosts if asked else 2,
        "servers_apart": bool(asked),
        "lookahead": 7,
        "set": [],
    }
    text = "\n".join(report.lines)
    assert "quickstart, 100mbit, 64 samples a trainer, a host each, 9 us a sample asleep" in text
    alone = next(row.split() for row in report.lines if row.split()[:2] == ["1", "600.00"])
    assert alone[4:] == ["300.00", "0.00", "60.00", f"{jobs[0]['predicted_rows_ms']:.2f}", "30"]


@pytest.mark.parametrize(("asked", "quick", "steps"), [([], False, 100), ([], True, 40), (["--steps", "70"], True, 70)])
def test_a_run_has_the_samples_that_its_steps_take(
    asked: list[str], quick: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, ...]] = []
    taken: list[tuple[object, ...]] = []

    def shards(*of: object) -> str:
        taken.append(of)
        return "shards"

    workload = SimpleNamespace(shards=shards, config=lambda overrides: ("config", *overrides))
    job: Any = SimpleNamespace(workload=workload, lookahead=4)
    monkeypatch.setattr(growth, "run_job", lambda *of: ran.append(of) or "result")
    monkeypatch.setattr(growth, "job_figures", lambda *of: of)
    paced_ones = arguments("--us-per-sample", "9", "--set", "train.seed=2", *asked, quick=quick)
    measured = growth._measure(job, 128, paced_ones)
    paced = [f"model.name={PACED_DLRM}", "model.us_per_sample=9.0"]
    overrides = ["train.batch_size=128", "train.threads=1", *paced, "train.seed=2"]
    assert ran == [(job, "shards", steps, overrides, growth.FOLDER)]
    assert taken == [(growth.FOLDER, growth.steady_steps(4, steps).total, 128)]
    figures = job, ["result"], ("config", *overrides)
    assert measured == {"jobs": [figures], "batch_size": 128, "measured_steps": steps, "set": overrides}
    plain = growth._measure(job, 128, arguments(*asked, quick=quick))
    assert plain["set"] == ["train.batch_size=128", "train.threads=1"]
