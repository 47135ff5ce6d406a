"""The figures of `python -m benchmarks prepare` are what its runs took."""

import argparse
import gzip
from pathlib import Path

import pytest

from bagpipe_hpc.tools.report import Report
from benchmarks import prepare
from benchmarks.prepare import Cost
from data_prep.generate import generate_clicks


def test_every_contender_reads_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_clicks(300, tmp_path / "clicks.tsv")
    packed = tmp_path / "clicks.gz"
    packed.write_bytes(gzip.compress((tmp_path / "clicks.tsv").read_bytes()))
    shard_rows = []
    prepare_clicks = prepare.prepare_clicks
    monkeypatch.setattr(prepare, "prepare_clicks", lambda *a: shard_rows.append(prepare_clicks(*a).rows("train")))
    report = prepare.run(argparse.Namespace(clicks=packed, rows=1, quick=True, runs=1))
    assert report.figures["rows"] == 300
    contenders = report.figures["contenders"]
    assert len(contenders) == 8
    assert shard_rows == [270] * 12  # six preparations, each once untimed
    for figures in contenders.values():
        assert figures["rows_per_s"] > 0
    assert contenders["vocabularies, no compression"]["shard_bytes_per_row"] >= 157


def test_fractions_are_taken_within_a_turn() -> None:
    turns = [
        {"bare parser, streaming": Cost(seconds, seconds), "vocabularies, lzf": Cost(2 * seconds, 3 * seconds)}
        for seconds in (1.0, 10.0, 2.0)
    ]
    report = Report("prepare", {"threads": 2})
    prepare._add_figures(report, 1_000_000, turns, {"vocabularies, lzf": 65_000_000})
    assert report.figures["contenders"] == {
        "bare parser, streaming": {"rows_per_s": 500_000, "cpu_us_per_row": 2.0, "fraction_of_stream": 1.0},
        "vocabularies, lzf": {
            "rows_per_s": 250_000,
            "cpu_us_per_row": 6.0,
            "fraction_of_stream": 0.5,
            "shard_bytes_per_row": 65.0,
        },
    }
    assert "50%" in report.lines[-1]
