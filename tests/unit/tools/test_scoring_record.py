"""A run that scores for long says how far it is."""

import logging

import pytest

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
