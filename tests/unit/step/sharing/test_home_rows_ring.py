"""The mover is rung for behind all that it is to see of a batch, and later gradients leave when nobody waits."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.step.sharing import home_rows
from bagpipe_hpc.step.sharing.home_rows import HomeRows


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> tuple[HomeRows, list[tuple[int, int]]]:
    """Rows of one group, and what there was for the mover at each ring: of what is awaited, and of computed batches."""
    found: list[tuple[int, int]] = []
    cache: Any = SimpleNamespace(device=Cpu())
    updates: Any = SimpleNamespace(waiting=lambda *_: nullcontext(), travelled=lambda *_: None)
    nobody: Any = None
    rows = HomeRows(
        [cache],
        updates,
        SimpleNamespace(trainer=0),  # type: ignore[arg-type]
        2,
        None,
        Waits(30.0),
        (nobody, nobody),
        lambda: found.append((len(rows._awaited), rows._computed.qsize())),
    )
    arrival = SimpleNamespace(is_complete=lambda: True)
    monkeypatch.setattr(rows, "_exchange_gradients", lambda *_: SimpleNamespace(arrival=arrival))
    monkeypatch.setattr(home_rows, "exchanges_of", lambda _: [])
    return rows, found


def test_now_gradients_that_leave(rung: tuple[HomeRows, list[tuple[int, int]]]) -> None:
    rows, found = rung
    own: Any = SimpleNamespace(rows=SimpleNamespace(slice_parts=lambda _: [1] * 5, now=None), solo=torch.empty(0))
    own.solo.size = 0  # type: ignore[method-assign]
    batch: Any = None
    rows._groups = [own, own]
    rows.begin_update(batch, 0, torch.zeros(5, 2))
    rows.begin_update(batch, 1, torch.zeros(5, 2))
    assert found == [(1, 0), (2, 0)]


def test_batches_that_are_computed(rung: tuple[HomeRows, list[tuple[int, int]]]) -> None:
    rows, found = rung
    batch: Any = SimpleNamespace(plan=SimpleNamespace(batch=0))
    rows.update(batch, 1)
    rows.only_read(batch)
    assert found == [(0, 1), (0, 2)], "each batch is handed over, the first with the copies that leave"


def test_copies_that_leave_before_their_batch_is_computed(
    rung: tuple[HomeRows, list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, found = rung
    monkeypatch.setattr(rows, "_begun", [SimpleNamespace()])
    monkeypatch.setattr(rows, "_groups", [SimpleNamespace()])
    monkeypatch.setattr(rows, "_is_now_summed", lambda: True)
    monkeypatch.setattr(rows, "_update_solo", lambda _: None)
    monkeypatch.setattr(rows, "_update_now", lambda _: setattr(rows, "_awaited", ("copies",)))
    batch: Any = None
    rows.update_early(batch, 1)
    assert found == [(1, 0)], "behind the copies that leave"


def test_later_gradients_leave_the_link_to_copies(
    rung: tuple[HomeRows, list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a batch wait for its own copies, and one behind another, so that all trainers have one order."""
    rows, _ = rung
    left: list[int] = []

    def leave(computed: Any) -> Any:
        left.append(computed.plan.batch)
        return SimpleNamespace(batch=computed.plan.batch)

    have_come = {0: False, 1: True}
    monkeypatch.setattr(rows, "_exchange", SimpleNamespace(pass_on=lambda: None, free_spent=lambda: None))
    monkeypatch.setattr(rows, "_exchange_later", leave)
    monkeypatch.setattr(rows, "_is_summed", lambda _: False)
    for batch in (0, 1):
        copies: Any = SimpleNamespace(is_complete=lambda batch=batch: have_come[batch])
        rows._has_updated_now, rows._awaited = True, (copies,)
        given: Any = SimpleNamespace(plan=SimpleNamespace(batch=batch))
        rows.update(given, batch + 1)
    rows._awaited = ()
    assert rows.advance()
    assert left == []
    have_come[0] = True
    assert rows.advance()
    assert left == [0, 1]
