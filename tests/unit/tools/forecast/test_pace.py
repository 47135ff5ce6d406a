"""Long planning says how far it is every ten seconds, where no bar on a terminal does."""

from types import SimpleNamespace

import pytest

from bagpipe_hpc import progress
from bagpipe_hpc.tools.forecast import pace
from bagpipe_hpc.tools.forecast.pace import Pace


@pytest.mark.parametrize(
    ("columns", "said"), [(0, ["planning: 11 of 30 batches", "planning: 22 of 30 batches"]), (80, [])]
)
def test_a_line_comes_every_ten_seconds_unless_there_is_a_terminal(
    columns: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress, "columns", lambda: columns)
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now_s))
    found: list[str] = []
    with Pace("planning", 30, found.append) as work:
        for _ in range(30):
            now_s += 1.0
            work.advance()
    assert found == said
