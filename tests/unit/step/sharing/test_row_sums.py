"""Row sums leave the device, packed where they travel in 16 bits."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.step.sharing.row_sums import RowSums

SUMS = torch.arange(6, dtype=torch.float32).view(3, 2)


def nobody() -> None:
    """Nobody is rung for."""


def test_sums_go_through_the_reducer() -> None:
    asked = []

    def start(gradients: np.ndarray) -> SimpleNamespace:
        asked.append("start")
        return SimpleNamespace(
            advance=lambda: asked.append("advance"), wait=lambda what: asked.append(what) or 2 * gradients
        )

    reducer: Any = SimpleNamespace(start=start)
    pending = RowSums(reducer, Cpu(), None, lambda: asked.append("ring")).start(SUMS)
    pending.advance()
    assert torch.equal(pending.wait("the rows"), 2 * SUMS)
    assert asked == ["start", "ring", "advance", "the rows"]


def test_short_numbers_are_packed_on_the_device_and_those_that_stay_are_rounded_alike() -> None:
    """The reducer is given bits and gives float32 numbers."""
    short = short_floats("bfloat16", 64)
    assert short is not None
    given: list[np.ndarray] = []
    reducer: Any = SimpleNamespace(start=given.append)
    sums = RowSums(reducer, Cpu(), short, nobody)
    values = SUMS / 3
    sums.start(values)
    np.testing.assert_array_equal(given[0], short.pack_array(values.numpy()))
    assert torch.equal(sums.rounded(values), short.rounded(values))
    assert not torch.equal(sums.rounded(values), values)
    assert RowSums(reducer, Cpu(), None, nobody).rounded(values) is values
