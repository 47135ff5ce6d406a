"""What a terminal is told cannot command it, and fits it."""

import io
import os
import sys
import unicodedata

import pytest

from bagpipe_hpc.terminal import COLUMNS_VARIABLE, columns, counted, fitting, printable, wrapped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train-00001.h5", "train-00001.h5"),
        ("Größe 表", "Größe 表"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\r\x00", r"\r\x00"),
        ("live\u202eexe.h5", r"live\u202eexe.h5"),
        ("bytes \udcff", r"bytes \udcff"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_nothing_commands_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_name_cannot_forge_a_line() -> None:
    assert printable("x\nbagpipe: all is well", is_layout_kept=False) == r"x\nbagpipe: all is well"


def test_no_control_character_is_left() -> None:
    shown = printable("".join(map(chr, range(0x3000))))
    assert {unicodedata.category(letter) for letter in shown if letter not in "\n\t"}.isdisjoint({"Cc", "Cf", "Cs"})


@pytest.mark.parametrize(("told", "width"), [("60", 60), ("0", 0), ("wide", 0), ("", 0)])
def test_the_launching_script_says_how_wide_the_terminal_is(
    told: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv(COLUMNS_VARIABLE, told)
    assert columns() == width


@pytest.mark.parametrize(("name", "width"), [("xterm", 80), ("dumb", 0)])
def test_a_terminal_that_takes_no_codes_is_none(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would show those that draw a line over."""
    ours, theirs = os.openpty()  # a new terminal does not know its width
    monkeypatch.delenv(COLUMNS_VARIABLE, raising=False)
    monkeypatch.setenv("TERM", name)
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert columns() == width
        monkeypatch.undo()
    os.close(ours)


PARTS = ["step 123456/999999", "loss 0.12345", "100,000 samples/s", "hits 90.0%", "0:01 left"]


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (0, "step 123456/999999  loss 0.12345  100,000 samples/s  hits 90.0%  0:01 left"),
        (200, "step 123456/999999  loss 0.12345  100,000 samples/s  hits 90.0%  0:01 left"),
        (75, "step 123456/999999  loss 0.12345  100,000 samples/s  hits 90.0%  0:01 left"),
        (74, "step 123456/999999  loss 0.12345  100,000 samples/s  0:01 left"),
        (60, "step 123456/999999  loss 0.12345  0:01 left"),
        (40, "step 123456/999999  loss 0.12345"),
        (12, "step 123456"),
        (1, ""),
    ],
)
def test_a_line_leaves_out_what_does_not_fit(width: int, line: str) -> None:
    assert fitting(PARTS, [3, 2, 4], width) == line
    assert not width or len(line) < width


def test_a_line_ends_between_words() -> None:
    text = "checkpoint /a/path/that/is/long-and-whole, all rows: 0.2 MB in 0.2 s\nhost1: oracle,  server 0"
    assert wrapped(text, 30) == (
        "checkpoint\n  /a/path/that/is/long-and-whole,\n  all rows: 0.2 MB in 0.2 s\nhost1: oracle,  server 0"
    )
    assert wrapped(text, 200) == text


def test_one_of_something_is_no_plural() -> None:
    said = [counted(number, noun) for noun in ("thread", "batch") for number in (0, 1, 2)]
    assert said == ["0 threads", "1 thread", "2 threads", "0 batches", "1 batch", "2 batches"]
