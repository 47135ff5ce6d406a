"""Row sums leave the device only where another trainer adds to them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.step.row_sums import RowSums

SUMS = torch.arange(6, dtype=torch.float32).view(3, 2)


def test_a_single_trainers_sums_stay_where_they_are() -> None:
    reducer: Any = SimpleNamespace(trainers=1)
    pending = RowSums(reducer, Cpu()).start(SUMS)
    pending.advance()
    assert pending.wait("them") is SUMS


def test_several_trainers_sums_go_through_the_reducer() -> None:
    asked = []

    def start(gradients: np.ndarray) -> SimpleNamespace:
        return SimpleNamespace(
            advance=lambda: asked.append("advance"), wait=lambda what: asked.append(what) or 2 * gradients
        )

    reducer: Any = SimpleNamespace(trainers=2, start=start)
    pending = RowSums(reducer, Cpu()).start(SUMS)
    pending.advance()
    assert torch.equal(pending.wait("the rows"), 2 * SUMS)
    assert asked == ["advance", "the rows"]
