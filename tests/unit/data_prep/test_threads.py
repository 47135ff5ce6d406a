"""A rank works as far ahead as its own threads need, not as all cores of the host would."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_prep.ordered_map import ordered_map
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.ranks.team import alone
from data_prep.stages import count, parse, write
from tests.click_rows import random_rows

THREADS = 33
"""More than there are ever started for cores."""


def silent(_: str) -> None:
    """Progress that nobody reads."""


def test_every_stage_works_two_pieces_for_a_thread_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def noted(pool: Any, function: Any, items: Any, ahead: int) -> Iterator[Any]:
        found.append(ahead)
        return ordered_map(pool, function, items, ahead)

    for stage in (parse, count, write):
        monkeypatch.setattr(stage, "ordered_map", noted)
    (tmp_path / "clicks").write_text("\n".join(random_rows(40, seed=1)))
    inputs = [str(tmp_path / "clicks")]
    prepare_clicks(inputs, tmp_path / "first", PrepareSettings(), silent, team=alone(silent, THREADS))
    later = PrepareSettings(like=tmp_path / "first")
    prepare_clicks(inputs, tmp_path / "later", later, silent, team=alone(silent, THREADS))
    assert len(found) >= 5
    assert set(found) == {2 * THREADS}
