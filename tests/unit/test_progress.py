"""Bars fit their terminal, appear where there is one, and leave nothing behind."""

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc import progress
from bagpipe_hpc.progress import LongWork, bar_line, clock
from bagpipe_hpc.terminal import COLUMNS_VARIABLE, columns, fitting, show_no_progress

PARTS = ["step 123456/999999", "loss 0.12345", "100,000 samples/s", "hits 90.0%", "0:01 left"]
CODES = re.compile(r"\x1b\[[\d;]*m")


@given(st.integers(1, 200), st.floats(-1, 2))
def test_a_line_fits_and_says_what_it_says_without_a_bar(width: int, share: float) -> None:
    line = CODES.sub("", bar_line(PARTS, [3, 2, 4], share, width))
    assert len(line) < width
    assert re.sub(r"  [━╸╺ ]+(?=  |$)", "", line) in [fitting(PARTS, [3, 2, 4], room) for room in (width, width - 10)]


@pytest.mark.parametrize(
    ("width", "has_hits", "bar"), [(77, True, 0), (79, True, 0), (80, False, 15), (100, True, 23), (300, True, 40)]
)
def test_where_there_is_room_a_bar_stands_behind_the_first_part(width: int, has_hits: bool, bar: int) -> None:
    line = CODES.sub("", bar_line(PARTS, [3, 2, 4], 1.0, width))
    assert ("hits" in line) == has_hits
    assert line.count("━") == bar
    assert line.startswith("step 123456/999999")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_bar_is_as_long_as_its_share(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = bar_line(["x"], [], share, 200)
    filled = sum(len(text) for code, text in re.findall(r"\x1b\[([\d;]+)m([━╸╺]+)", line) if code != "90")
    assert filled == pytest.approx(40 * share, abs=1)


def test_colours_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[(3|9)\d", bar_line(PARTS, [], 0.5, 200))


def test_a_terminal_without_these_letters_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    bar_line(PARTS, [], 0.5, 200).encode("ascii")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """A terminal of 60 columns on which everything is drawn."""
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setenv(COLUMNS_VARIABLE, "60")
    return capsys


def test_long_work_is_drawn_over_and_taken_away(drawn: pytest.CaptureFixture[str]) -> None:
    with LongWork("filling the tables", 2000, "rows") as work:
        work.advance(500)
        work.advance(1500)
    first, second, last = drawn.readouterr().err.split("\r\x1b[K")[1:]
    assert re.sub(r"  [━╸╺ ]+(?=  )", "", CODES.sub("", first)).startswith(
        "filling the tables  25%  500 of 2,000 rows  0:0"
    )
    assert "100%" in second
    assert last == ""


def test_a_note_says_it_in_other_units(drawn: pytest.CaptureFixture[str]) -> None:
    with LongWork("parsed", 100, "the input") as work:
        work.advance(50, "1,234 rows")
    assert "  50%  1,234 rows  0:0" in drawn.readouterr().err


@pytest.mark.parametrize("total", [0, 1])
def test_more_than_all_and_none_divide_nothing_by_zero(total: int, drawn: pytest.CaptureFixture[str]) -> None:
    with LongWork("x", total, "rows") as work:
        work.advance(3)
        work.advance(0)
    assert drawn.readouterr().err.endswith("\r\x1b[K")


def test_nothing_is_drawn_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, drawn: pytest.CaptureFixture[str]
) -> None:
    """Nor by ranks that do not speak, of what is soon done, or where no progress is wanted."""
    with LongWork("x", 2, "rows", is_told=False) as work:
        work.advance()
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 3600.0)
    with LongWork("x", 2, "rows") as work:
        work.advance()
        assert work.is_shown
    monkeypatch.setenv(COLUMNS_VARIABLE, "60")  # restored behind the test
    show_no_progress()
    assert columns() == 0
    with LongWork("x", 2, "rows") as work:
        work.advance()
        assert not work.is_shown
    assert drawn.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3725, "1:02:05")])
def test_times_are_those_of_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
