"""What a command finds is said in tables to a person, and in a line of JSON to a program."""

import json
import sys
from pathlib import Path

import pytest

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.terminal import STDOUT_VARIABLE
from bagpipe_hpc.tools.report import Report
from tests.pipes import without_reader


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_shows_tables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    """A file that is named gets the line in either case."""
    monkeypatch.setenv(STDOUT_VARIABLE, "1" if is_terminal else "")
    report = Report("links", {"bytes": 7})
    report.table("of a link", ("kind", "bytes"), [("rows", "7")])
    report.finish(tmp_path / "found.jsonl")
    said, kept = capsys.readouterr().out, (tmp_path / "found.jsonl").read_text(encoding="utf-8")
    assert said == "of a link\nkind  bytes\nrows      7\n" + ("" if is_terminal else f"\n{kept}")
    assert json.loads(kept)["bytes"] == 7


def test_what_one_place_cannot_take_the_others_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command may have worked for hours before it says what it found."""
    save, plot = tmp_path / "found.jsonl", tmp_path / "plot.svg"
    report = Report("links", {"bytes": 7}, ["seven"], {plot: "<svg/>"})
    with monkeypatch.context() as patched, without_reader() as stdout:
        patched.setattr(sys, "stdout", stdout)
        with pytest.raises(BrokenPipeError):
            report.finish(save)
    assert json.loads(save.read_text(encoding="utf-8"))["bytes"] == 7
    assert plot.read_text(encoding="utf-8") == "<svg/>"
    plot.unlink()
    with pytest.raises(FileError, match=r"absent/found\.jsonl: No such file"):
        report.finish(tmp_path / "absent" / "found.jsonl")
    assert capsys.readouterr().out.startswith("seven\n")
    assert plot.exists()
