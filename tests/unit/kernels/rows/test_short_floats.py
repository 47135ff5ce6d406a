"""Numbers in 16 bits are rounded to the nearest, the same whichever way they take."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagpipe_hpc.kernels.rows.short_floats import ShortFloats, short_floats

KINDS = ["bfloat16", "float16"]
BATCH = 2500  # 2,048 is the largest power of two
kinds = pytest.mark.parametrize("name", KINDS)


def short(name: str) -> ShortFloats:
    found = short_floats(name, BATCH)
    assert found is not None
    return found


def values(seed: int, shape: tuple[int, ...] = (50, 7)) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(shape) * 10.0 ** rng.uniform(-9, 0, shape)).astype(np.float32))


def test_float32_is_left_alone() -> None:
    assert short_floats("float32", BATCH) is None


@kinds
@given(seed=st.integers(0, 2**32))
def test_what_arrives_is_what_rounding_says(name: str, seed: int) -> None:
    """Trainers read packed numbers, the reference rounds; a number that is rounded stays as it is."""
    before = values(seed)
    original = before.clone()
    packed = short(name).pack(before)
    assert packed.dtype == torch.int16
    arrived = short(name).unpack(packed.numpy(), np.empty(before.shape, dtype=np.float32))
    rounded = short(name).rounded(before)
    assert torch.equal(torch.from_numpy(arrived), rounded)
    np.testing.assert_array_equal(short(name).pack_array(before.numpy()), packed.numpy())
    assert torch.equal(short(name).rounded(rounded), rounded)
    assert torch.equal(before, original)


@given(seed=st.integers(0, 2**32))
def test_bfloat16_keeps_eight_bits_of_any_number(seed: int) -> None:
    before = values(seed) * 1e-25
    normal = before.abs().clamp(min=2.0**-126)  # smaller numbers lie on a grid
    assert ((short("bfloat16").rounded(before) - before).abs() <= normal * 2**-8).all()


@given(seed=st.integers(0, 2**32))
def test_float16_keeps_eleven_bits_or_a_grid_by_the_batch(seed: int) -> None:
    """NumPy's float16 of the scaled numbers; without the scale most small ones would be lost."""
    before = values(seed)
    found = short("float16").rounded(before)
    np.testing.assert_array_equal(found.numpy(), (before.numpy() * 2048).astype(np.float16).astype(np.float32) / 2048)
    assert ((found - before).abs() <= (before.abs() * 2**-11).clamp(min=2**-25 / 2048)).all()


@pytest.mark.parametrize(
    ("batch", "largest"), [(1, 65504), (2, 65504 / 2), (4095, 65504 / 2048), (10**6, 65504 / 4096)]
)
def test_float16_has_room_for_the_gradients_of_a_batch(batch: int, largest: float) -> None:
    found = short_floats("float16", batch)
    assert found is not None
    assert found.rounded(torch.tensor([largest, largest * 1.01])).tolist() == [largest, math.inf]


@kinds
def test_what_is_not_finite_stays_so(name: str) -> None:
    found = short(name).rounded(torch.tensor([math.inf, -math.inf, math.nan]))
    assert found[:2].tolist() == [math.inf, -math.inf]
    assert found[2].isnan()


@kinds
def test_no_numbers_are_no_numbers(name: str) -> None:
    packed = short(name).pack(torch.empty(0, 4)).numpy()
    assert short(name).unpack(packed, np.empty((0, 4), dtype=np.float32)).shape == (0, 4)
