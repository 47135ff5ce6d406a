"""`bagpipe inspect` writes the files that it is asked for, whatever becomes of its stdout."""

import json
import sys
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.rows.access_statistics import read_statistics
from tests.pipes import without_reader
from tests.ragged_shards import write_ragged


def test_files_are_written_where_nobody_reads_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `bagpipe inspect shards --json found.json | head`."""
    write_ragged(tmp_path)
    files = [tmp_path / name for name in ("found.json", "found.svg", "accesses.npz")]
    options = zip(("--json", "--plot", "--statistics"), map(str, files), strict=True)
    with without_reader() as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["inspect", str(tmp_path), *(word for option in options for word in option)]) == 0
    assert json.loads(files[0].read_text(encoding="utf-8"))["samples"] == read_statistics(files[2]).samples == 100
    assert files[1].read_text(encoding="utf-8").startswith("<svg")
