"""A trainer that is alone updates all rows of a batch at once, each group of tables once."""

from types import SimpleNamespace
from typing import Any

import torch

from bagpipe_hpc.step.sharing.lone_rows import LoneRows

Applied = list[tuple[int, list[int], list[float], int]]


def test_each_groups_rows_are_updated_once() -> None:
    applied: Applied = []
    updates: Any = SimpleNamespace(
        apply=lambda group, slots, sums, step: applied.append((group, slots.tolist(), sums.tolist(), step))
    )
    rows = LoneRows(updates)

    def batch(*slots: list[int]) -> Any:
        look_ups = [SimpleNamespace(slots=torch.tensor(own, dtype=torch.int32)) for own in slots]
        return SimpleNamespace(inputs=SimpleNamespace(look_ups=look_ups))

    first, second = batch([3, 1], [7]), batch([2], [5, 6])
    for number, (own, sums) in enumerate([(first, ([1.0, 2.0], [3.0])), (second, ([4.0], [5.0, 6.0]))], 1):
        for group, of_group in enumerate(sums):
            rows.begin_update(own, group, torch.tensor(of_group))
        rows.update_early(own, number)
        rows.update(own, number)
        rows.finish_delayed()
    assert applied == [(0, [3, 1], [1.0, 2.0], 1), (1, [7], [3.0], 1), (0, [2], [4.0], 2), (1, [5, 6], [5.0, 6.0], 2)]
    plan: Any = None
    assert rows.is_ready(plan)
    assert rows.may_retire(plan)
    assert not rows.advance()
    assert rows.awaited() == []
