"""Steps of several trainers are predicted from one trainer's step and the link alone."""

from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks.growth import compare, samples_of
from benchmarks.step import benchmark as step

DENSE_BYTES = 475_985 * 4
BYTES_PER_S = 0.1e9 / 8


def line(trainers: int, step_ms: float, others: float = 0.0, batch_size: int | None = None) -> dict[str, Any]:
    """A run, as benchmark `step` writes it."""
    job = {"workload": "quickstart", "link": "100mbit", "trainers": trainers, "spread": True, "lookahead": 4}
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


def test_batches_are_slices_or_shared() -> None:
    assert samples_of([1, 4], 64, None) == {1: 64, 4: 256}
    assert samples_of([1, 4], 64, 1024) == {1: 1024, 4: 1024}
    with pytest.raises(ConfigError, match=r"--batch 100: 3 trainers cannot share it; use a multiple of 3"):
        samples_of([1, 2, 3], 64, 100)
