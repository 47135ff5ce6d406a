"""Volumes of drawn look-ups: what the plans of both ways to share rows ask of trainers."""

import argparse
from pathlib import Path

import pytest

from benchmarks import volumes
from benchmarks.jobs import links
from benchmarks.volumes import MOVED, drawn_cell

ARGUMENTS = argparse.Namespace(rows=3000, batch_size=64, lookahead=4, batches=6)


@pytest.mark.parametrize("trainers", [1, 2, 4])
def test_one_home_moves_each_row_once(trainers: int) -> None:
    """All trainers together update and fetch what one alone would; what is copied comes back as gradients."""
    alone, home, replicated = (
        drawn_cell(ARGUMENTS, *of)["moved"] for of in ((1, "home"), (trainers, "home"), (trainers, "replicated"))
    )
    assert set(home) == set(MOVED)
    for name in ("fetched", "written", "updated"):
        assert home[name] * trainers == pytest.approx(alone[name], abs=0.1 * trainers)
        assert home[name] <= replicated[name]
    assert (home["copied"] > 0) == (home["sent_home"] > 0) == (trainers > 1)
    assert replicated["copied"] == replicated["sent_home"] == 0


def test_a_trainer_of_many_has_few_rows() -> None:
    resident = {sharing: drawn_cell(ARGUMENTS, 4, sharing)["resident"] for sharing in ("home", "replicated")}
    assert resident["home"] < resident["replicated"]


def test_links_that_are_left_out_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "FOLDER", tmp_path)
    monkeypatch.setattr(links, "refusal", lambda _: "needs root")
    report = volumes.run(argparse.Namespace(link=None, trainers=None, rows=0, quick=True))
    assert report.lines[:2] == ["link 10gbit left out: needs root", "link 1gbit left out: needs root"]
    assert report.figures["links_left_out"] == ["10gbit", "1gbit"]
