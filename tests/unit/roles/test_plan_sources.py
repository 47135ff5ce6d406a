"""The oracle says over which trainers rows with one home travel, or that a grid has nothing to do."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.roles import plan_sources
from bagpipe_hpc.telemetry.trace import Trace


@pytest.mark.parametrize(
    ("sharing", "exchange", "told"),
    [
        ("home", "grid", "rows between trainers: over a grid of 2 x 2"),
        ("replicated", "grid", "cache.exchange = 'grid': it is for rows with one home, and rows are replicated"),
        ("replicated", "auto", ""),
    ],
)
def test_how_rows_travel_is_told(
    sharing: str, exchange: str, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plan_sources, "PlannedSource", lambda *_: None)
    cache = SimpleNamespace(sharing=sharing, exchange=exchange)
    run: Any = SimpleNamespace(config=SimpleNamespace(cache=cache, train=SimpleNamespace(plans="")))
    need: Any = None
    with caplog.at_level(logging.INFO):
        plan_sources.open_source(run, need, trainers=4, trace=Trace(enabled=False))
    assert [message.startswith(told) for message in caplog.messages] == ([True] if told else [])
