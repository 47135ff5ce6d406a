"""Rows in tiers go both ways: what is asked of them is asked of both, of rows that every trainer has first."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bagpipe_hpc.step.sharing.tiered_rows import TieredRows


class Way:
    """Notes what it is asked, and says what the test wants it to."""

    def __init__(self, name: str, noted: list[tuple[Any, ...]], answers: dict[str, Any]) -> None:
        self._name, self._noted, self._answers = name, noted, answers

    def __getattr__(self, method: str) -> Any:
        def asked(*arguments: Any) -> Any:
            self._noted.append((self._name, method, *arguments))
            return self._answers.get(method)

        return asked


@pytest.fixture
def noted() -> list[tuple[Any, ...]]:
    return []


def rows_of(noted: list[tuple[Any, ...]], everywhere: dict[str, Any], at_homes: dict[str, Any]) -> TieredRows:
    ways: Any = Way("everywhere", noted, everywhere), Way("at homes", noted, at_homes)
    return TieredRows(*ways)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("start", ("batch",)),
        ("advance_delayed", ()),
        ("update", ("batch", 3)),
        ("finish_delayed", ()),
        ("only_read", ("batch",)),
        ("expect", ("plan",)),
        ("restart", ()),
    ],
)
def test_both_are_told(method: str, arguments: tuple[Any, ...], noted: list[tuple[Any, ...]]) -> None:
    getattr(rows_of(noted, {}, {}), method)(*arguments)
    assert noted == [(way, method, *arguments) for way in ("everywhere", "at homes")]


def test_rows_with_homes_alone_are_updated_early(noted: list[tuple[Any, ...]]) -> None:
    batch: Any = "batch"
    rows_of(noted, {}, {}).update_early(batch, 3)
    assert ("at homes", "update_early", "batch", 3) in noted


def test_the_first_rows_of_a_slice_are_those_that_every_trainer_has(noted: list[tuple[Any, ...]]) -> None:
    """Of the second group of tables: now ones and later ones."""
    groups = [
        SimpleNamespace(shared=SimpleNamespace(now_slots=np.empty(now), later_slots=np.empty(later)))
        for now, later in ((4, 4), (2, 1))
    ]
    batch: Any = SimpleNamespace(plan=SimpleNamespace(groups=groups))
    rows_of(noted, {}, {}).begin_update(batch, 1, torch.arange(5))
    assert [(*asked[:4], asked[4].tolist()) for asked in noted] == [
        ("everywhere", "begin_update", batch, 1, [0, 1, 2]),
        ("at homes", "begin_update", batch, 1, [3, 4]),
    ]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("at_homes", [False, True])
def test_both_are_asked(noted: list[tuple[Any, ...]], *, everywhere: bool, at_homes: bool) -> None:
    """Both are moved on, whatever the first one says; rows are ready, and may leave, when both say so."""
    methods = ("advance", "is_ready", "may_retire")
    rows = rows_of(noted, dict.fromkeys(methods, everywhere), dict.fromkeys(methods, at_homes))
    plan: Any = "plan"
    assert rows.advance() == (everywhere or at_homes)
    assert noted == [("everywhere", "advance"), ("at homes", "advance")]
    assert rows.is_ready(plan) == (everywhere and at_homes)
    assert rows.may_retire(plan) == (everywhere and at_homes)


def test_both_are_awaited(noted: list[tuple[Any, ...]]) -> None:
    assert rows_of(noted, {"awaited": ["sums"]}, {"awaited": ["copies"]}).awaited() == ["sums", "copies"]
