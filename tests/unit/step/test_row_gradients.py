"""Sums of row gradients leave once a batch, in the order of the groups of tables, whatever comes first."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.step.ready_batch import LookUps, ReadyBatch
from bagpipe_hpc.step.row_gradients import RowGradients
from bagpipe_hpc.telemetry.trace import Trace

CPU = torch.device("cpu")
WIDTHS = (3, 5, 2)
POSITIONS = torch.tensor([1, 0, 1, 2], dtype=torch.int32)


def caches() -> list[RowCache]:
    return [RowCache(4, RowRecord(width, (), False), row_operations("auto", CPU), CPU) for width in WIDTHS]


def micro_batches(count: int) -> list[ReadyBatch]:
    """Each looks the same rows up."""
    look_ups = tuple(LookUps(torch.arange(3, dtype=torch.int32), POSITIONS, None, None) for _ in WIDTHS)
    sizes = np.full(count, 4, dtype=np.int32) if count > 1 else None
    plan: Any = SimpleNamespace(micro_batches=sizes)
    inputs: Any = SimpleNamespace(look_ups=look_ups)
    return [ReadyBatch(plan, inputs, None, part) for part in range(count)]


def gradients(seed: int) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {width: torch.randn(len(POSITIONS), width, generator=generator) for width in WIDTHS}


@pytest.mark.parametrize("order", list(permutations(WIDTHS)))
def test_groups_leave_in_their_order(order: tuple[int, ...]) -> None:
    left: list[int] = []
    rows = RowGradients(caches(), lambda _, group, __: left.append(group), Trace(enabled=False))
    for batch in (*micro_batches(1), *micro_batches(1)):
        left.clear()
        rows.begin_pass(batch)
        own = gradients(1)
        for number, width in enumerate(order):
            rows.take(width, own[width])
            there = set(order[: number + 1])
            assert left == [group for group in range(3) if there.issuperset(WIDTHS[: group + 1])]


@pytest.mark.parametrize("early", range(len(WIDTHS) + 1))
def test_the_last_micro_batch_lets_the_sums_of_all_leave(early: int) -> None:
    """However many groups the backward pass has given before it ends."""
    left: dict[int, Tensor] = {}
    rows = RowGradients(caches(), lambda _, group, sums: left.update({group: sums}), Trace(enabled=False))
    for part, batch in enumerate(micro_batches(3)):
        assert not left
        rows.begin_pass(batch)
        own = gradients(part)
        for width in WIDTHS[:early]:
            rows.take(width, own[width])
        rows.take_others(own)
    assert list(left) == [0, 1, 2]
    for group, width in enumerate(WIDTHS):
        expected = torch.zeros(3, width)
        for part in range(3):
            expected += torch.zeros(3, width).index_add(0, POSITIONS, gradients(part)[width])
        torch.testing.assert_close(left[group], expected)
