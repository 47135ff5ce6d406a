"""The benchmark of reading counts what is taken from the files, for each order and number of trainers."""

import argparse
from pathlib import Path

import pytest

from bagpipe_hpc.storage.shards import writer
from benchmarks import reading


def test_it_counts_what_each_trainer_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 64 samples: with a lane each of 8 trainers reads an eighth and a little, without lanes everything."""
    monkeypatch.setattr(writer, "CHUNK_ROWS", 64)
    monkeypatch.setattr(reading, "CHUNK_ROWS", 64)
    manifest = reading.generated_shards(tmp_path, shards=4, rows=64 * 64)
    orders = [reading.ReadingOrder("blocks", 512, 1), reading.ReadingOrder("lanes", 64, 8)]
    runs = [reading.run_of(tmp_path, manifest, order, batch_size=512) for order in orders]
    report = reading._report(orders, runs, trainers=[1, 8], repeats=1)
    blocks, lanes = report.figures["orders"]
    assert report.figures["epoch_bytes"] > 4 * 64 * 64 * 4
    assert [own["read_to_share"] for own in blocks["trainers"]] == [1, 8]
    assert all(1 <= own["read_to_share"] < 1.1 for own in lanes["trainers"])
    assert lanes["lanes"] == 8
    assert "The oracle, one thread" in report.lines


def test_a_quick_look_is_at_generated_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = reading.generated_shards
    monkeypatch.setattr(reading, "generated_shards", lambda folder, shards, rows: generate(folder, shards, rows // 64))
    report = reading.run(
        argparse.Namespace(folder=tmp_path, shards=None, quick=True, runs=1, batch_size=1 << 16, lanes=2, trainers=[2])
    )
    assert [order["name"] for order in report.figures["orders"]] == [
        "blocks of a batch",
        "blocks of a chunk",
        "2 lanes",
    ]
    assert not list(tmp_path.iterdir())
