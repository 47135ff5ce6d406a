"""Lines of progress say how much is done, how fast, and what is left; not too often."""

import pytest

import bagpipe_hpc.progress
import data_prep.ranks.progress
from bagpipe_hpc.terminal import COLUMNS_VARIABLE
from data_prep.ranks.progress import StageProgress, duration


class Clock:
    """Stands for `time`."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(data_prep.ranks.progress, "time", clock)
    return clock


def test_a_line_now_and_then_and_at_the_end(clock: Clock) -> None:
    lines: list[str] = []
    stage = StageProgress("parsed", "rows", 10_000, 2000, 500, "the input", lines.append)
    for seconds, done, finished in (
        (2, 1000, True),
        (8, 1000, False),
        (10, 1000, True),
        (11, 2000, True),
        (12, 3000, True),
    ):
        clock.now_s = 100.0 + seconds
        stage.add(done, done // 4, finished=finished)
    assert lines == [
        "parsed 1,250 rows (50% of the input), 75 rows/s, 17 s left",
        "parsed 2,500 rows (100% of the input), 167 rows/s",
    ]


def test_a_terminal_has_a_bar_and_the_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What earlier runs have done counts in the lines alone: the bar is of this one."""
    monkeypatch.setattr(bagpipe_hpc.progress, "_FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(bagpipe_hpc.progress, "_EVERY_S", 0.0)
    monkeypatch.setattr(data_prep.ranks.progress, "LINE_EVERY_S", 0.0)
    monkeypatch.setenv(COLUMNS_VARIABLE, "60")
    lines: list[str] = []
    stage = StageProgress("parsed", "rows", 10_000, 2000, 500, "the input", lines.append)
    for done in (4000, 4000):
        stage.add(done, done // 4, finished=True)
    assert [line.split(",")[0] for line in lines] == ["parsed 2"]
    first, last, gone = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert first.startswith("parsed  ")
    assert "50%  1,500 rows" in first
    assert "100%  2,500 rows" in last
    assert gone == ""


def test_a_stage_of_nothing_says_nothing(clock: Clock) -> None:
    lines: list[str] = []
    StageProgress("parsed", "rows", 0, 0, 0, "the input", lines.append).add(0, 0, finished=True)
    assert clock.now_s == 100.0
    assert lines == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7261, "2 h 1 min"),
        (3600, "1 h"),
        (3605, "1 h 5 s"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
