"""A run that scores for long says how far it is."""

import logging

import pytest

from bagpipe_hpc import progress
from bagpipe_hpc.terminal import COLUMNS_VARIABLE
from bagpipe_hpc.tools.scoring import purpose
from bagpipe_hpc.tools.scoring.purpose import ScoringRecord


def test_it_speaks_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    monkeypatch.setattr(purpose.time, "monotonic", lambda: now_s)
    record = ScoringRecord()
    with caplog.at_level(logging.INFO, logger=purpose.__name__):
        for batch in range(1, 41):
            now_s += 1.0
            record.scored(batch, 40)
    assert caplog.messages == ["11 of 40 batches, 28%", "22 of 40 batches, 55%", "33 of 40 batches, 82%"]


def test_on_a_terminal_it_has_a_bar_in_place_of_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setattr(purpose, "_SPEAKS_EVERY_S", -1.0)
    monkeypatch.setenv(COLUMNS_VARIABLE, "60")
    record = ScoringRecord()
    with caplog.at_level(logging.INFO, logger=purpose.__name__):
        for batch in range(1, 3):
            record.scored(batch, 2)
    half, _, gone = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert half.startswith("scoring  ")
    assert "1 of 2 batches" in half
    assert (gone, caplog.messages) == ("", [])
