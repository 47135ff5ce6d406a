"""Slots are reserved where all trainers can have them together, not only one after the other."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation import compute_check
from bagpipe_hpc.preparation.settling.caches import settle_reserved

NEED = CacheNeed(Window(4, 1), (CacheSlots(40, 10, 20),))
"""Fifty slots with numbers, of which twenty are reserved."""


class Host:
    """Promises addresses for so many slots, as a system with `vm.overcommit_memory = 2` does."""

    def __init__(self, slots: int) -> None:
        self.left = slots

    @contextmanager
    def trying_to_reserve(self, size: int) -> Any:
        slots = size // 10
        can = slots <= self.left
        self.left -= slots * can
        yield can
        self.left += slots * can


@pytest.mark.parametrize(("promised", "all_can"), [(49, False), (99, False), (100, True)])
def test_two_trainers_of_a_host(monkeypatch: pytest.MonkeyPatch, promised: int, *, all_can: bool) -> None:
    host = Host(promised)
    monkeypatch.setattr(compute_check, "trying_to_reserve", host.trying_to_reserve)
    monkeypatch.setattr(compute_check, "_slot_bytes", lambda _: 10)
    run: Any = SimpleNamespace(config=SimpleNamespace(train=SimpleNamespace(device="cpu", timeout_s=30.0)), groups=[0])

    def allgather(own: object) -> list[object]:
        """What both say, the other one while this one waits for it."""
        with compute_check.trying_to_reserve_slots(run, 0, NEED.groups) as other:
            return [True, own, other]  # the oracle needs none

    comms: Any = SimpleNamespace(role=Role.TRAINER, gpu_number=0, world=SimpleNamespace(allgather=allgather))
    assert settle_reserved(run, NEED, comms) == (NEED if all_can else NEED.in_memory())
    assert host.left == promised
