"""A window has fewer batches than there are, also at a look; nothing is read or planned here."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks import oracle
from benchmarks.command import BENCHMARKS


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """The arguments with which would be measured."""
    found: list[argparse.Namespace] = []

    def measure(_: Path, arguments: argparse.Namespace, __: int) -> dict[str, oracle.Times]:
        found.append(arguments)
        return {part: oracle.Times([0.5], [0.25]) for part in oracle.PARTS}

    monkeypatch.setattr(oracle, "write_shards", lambda *_: None)
    monkeypatch.setattr(oracle, "measure", measure)
    monkeypatch.setattr(oracle, "time_to_start", lambda *_: 1.0)
    monkeypatch.setattr(oracle, "keep_all_freed_memory", lambda: None)
    return found


def arguments(*given: str, **changes: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    BENCHMARKS["oracle"].add_arguments(parser)
    return argparse.Namespace(**vars(parser.parse_args(given)) | {"quick": False, "runs": 1} | changes)


def test_a_look_has_a_window_that_rows_leave(measured: list[argparse.Namespace]) -> None:
    report = oracle.run(arguments(quick=True))
    assert measured[0].lookahead == 10
    assert measured[0].samples // measured[0].batch_size == 16
    assert report.figures["lookahead"] == 10
    assert any("L = 10," in line for line in report.lines)


def test_the_usual_sizes_are_enough(measured: list[argparse.Namespace]) -> None:
    assert oracle.run(arguments()).figures["lookahead"] == measured[0].lookahead == 40


@pytest.mark.parametrize("given", [["--lookahead", "45"], ["--samples", "2000000"], ["--run-samples", "2000000"]])
def test_too_few_batches_are_refused(measured: list[argparse.Namespace], given: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--lookahead \d+: takes \d+ batches, and .* use more samples"):
        oracle.run(arguments(*given))
    assert not measured
