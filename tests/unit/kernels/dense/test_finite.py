"""Where the first NaN or infinity is: native code and its torch twin, against NumPy."""

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.dense.finite import FiniteKernel, NativeFinite, ReferenceFinite, finite_kernel

CPU = torch.device("cpu")
BAD = [torch.nan, -torch.nan, torch.inf, -torch.inf]

needs_native = pytest.mark.skipif(not shared_library.is_built("finite"), reason="_finite.so is not built")
kernels = pytest.mark.parametrize(
    "kernel",
    [
        ReferenceFinite(),
        pytest.param(lambda: NativeFinite(1), marks=needs_native, id="native"),
        pytest.param(lambda: NativeFinite(3), marks=needs_native, id="native, 3 threads"),
    ],
)


def made(kernel: object) -> FiniteKernel:
    return kernel() if callable(kernel) else kernel


@kernels
@pytest.mark.parametrize("width", [1, 5, 16, 64])
def test_the_first_row_is_found_in_any_table(kernel: object, width: int) -> None:
    """By its place among the slots, whatever rows that are not asked for hold."""
    rng = np.random.default_rng(width)
    tables = [torch.full((60_000, columns), torch.nan) for columns in (width, 1)]
    slots = rng.choice(60_000, 30_000, replace=False).astype(np.int32)
    for table in tables:
        table[slots] = torch.from_numpy(
            rng.choice([0.0, -0.0, 1e-45, 3.4e38, -3.4e38], (30_000, table.shape[1]))
        ).float()
    look = made(kernel).first_row
    assert int(look(tables, torch.from_numpy(slots))) == 30_000
    for place, number in zip((29_999, 17_001, 12_345, 0), BAD, strict=True):
        tables[place % 2][int(slots[place]), -1] = number
        assert int(look(tables, torch.from_numpy(slots))) == place
        assert int(look(tables[::-1], torch.from_numpy(slots))) == place


@kernels
def test_without_rows_none_is_found(kernel: object) -> None:
    assert int(made(kernel).first_row([torch.full((3, 2), torch.nan)], torch.empty(0, dtype=torch.int32))) == 0


@kernels
@pytest.mark.parametrize("number", BAD)
def test_the_first_tensor_is_found(kernel: object, number: float) -> None:
    tensors = [torch.full(shape, 3.4e38) for shape in ((7, 900), (), (0, 4), (5000,), (1,))]
    look = made(kernel).first_tensor
    assert int(look(tensors)) == 5
    assert int(look([])) == 0
    for which, place in ((4, 0), (3, 4999), (1, 0), (0, 6299)):
        tensors[which].view(-1)[place] = number
        assert int(look(tensors)) == which


@needs_native
def test_native_code_refuses_what_it_would_misread() -> None:
    look = NativeFinite(1)
    with pytest.raises(ValueError, match=r"slots is torch.int64 \(2,\) .*needs contiguous int32"):
        look.first_row([torch.zeros(4, 2)], torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"table is torch.float64"):
        look.first_row([torch.zeros(4, 2).double()], torch.tensor([0, 1], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"tensor is torch.float32 \(3, 2\) .*needs contiguous float32"):
        look.first_tensor([torch.zeros(2, 3).t()])
    with pytest.raises(ValueError, match=r"tensor is torch.float32 \(2,\) on meta: .* on the CPU"):
        look.first_tensor([torch.zeros(2, device="meta")])


def test_the_twin_can_be_forced() -> None:
    assert isinstance(finite_kernel("reference", CPU), ReferenceFinite)
