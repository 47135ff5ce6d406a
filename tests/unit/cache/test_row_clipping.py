"""Row gradients are clipped one by one, by a norm that does not depend on where a row stands, before any update."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.cache.row_clipping import clip_rows
from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from tests.row_optimizers import row_optimizer

CPU = torch.device("cpu")
MOST = 0.75


def gradients(seed: int, rows: int, width: int) -> torch.Tensor:
    """Rows of norms from far below `MOST` to far above."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, width)) * 10.0 ** rng.uniform(-6, 6, (rows, 1))
    return torch.from_numpy(values.astype(np.float32))


@given(seed=st.integers(0, 2**32), width=st.integers(1, 40), rows=st.integers(1, 60))
def test_long_rows_get_the_norm_and_keep_their_direction(seed: int, width: int, rows: int) -> None:
    given_ones = gradients(seed, rows, width)
    before = given_ones.clone()
    found = clip_rows(given_ones, MOST)
    assert found.dtype == torch.float32
    assert torch.equal(given_ones, before)
    norms = before.double().norm(dim=1, keepdim=True)
    is_long = norms > MOST * (1 + 1e-6)
    expected = torch.where(is_long, before.double() / norms * MOST, before.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    is_short = (norms < MOST * (1 - 1e-6)).squeeze(1)
    assert torch.equal(found[is_short], before[is_short])


@given(seed=st.integers(0, 2**32), width=st.integers(1, 40), rows=st.integers(2, 60), cut=st.integers(1, 59))
def test_a_row_has_the_same_bits_wherever_it_stands(seed: int, width: int, rows: int, cut: int) -> None:
    whole = gradients(seed, rows, width)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    parts = [clip_rows(part, MOST) for part in (whole[order][:cut], whole[order][cut:])]
    assert torch.equal(torch.cat(parts), clip_rows(whole, MOST)[order])


def test_numbers_whose_squares_overflow_are_clipped_and_what_is_not_finite_stays_so() -> None:
    found = clip_rows(torch.tensor([[3e38, 0.0], [3e30, 4e30], [math.inf, 1.0], [math.nan, 1.0], [0.0, 0.0]]), 5.0)
    assert found[0].tolist() == [5.0, 0.0]
    assert found[1].tolist() == [3.0, 4.0]
    assert not found[2].isfinite().all()
    assert not found[3].isfinite().all()
    assert found[4].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", ["sgd", "rowwise_adagrad", "adam"])
def test_updates_see_clipped_gradients(backend: str, name: str) -> None:
    """Whether a native kernel or a formula updates: as if the gradients had been so short."""
    operations, optimizer = row_operations(backend, CPU), row_optimizer(name)
    slots = torch.arange(9, dtype=torch.int32)
    own = gradients(1, 9, 8)

    def updated(summed: torch.Tensor, clip_norm: float) -> list[torch.Tensor]:
        weights = torch.ones(9, 8)
        state = [torch.zeros(9, part.width(8)) for part in optimizer.state]
        update_rows(operations, optimizer, weights, state, slots, summed, 3, clip_norm)
        return [weights, *state]

    clipped, expected, unclipped = updated(own, MOST), updated(clip_rows(own, MOST), 0.0), updated(own, 0.0)
    assert all(torch.equal(one, other) for one, other in zip(clipped, expected, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(clipped, unclipped, strict=True))
