"""What native code may read: plain memory of a known shape."""

import torch
from torch import Tensor


def check_plain(
    tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, name: str = "tensor"
) -> None:
    """Check that a tensor is what native code takes it for: contiguous, of this shape and type, on the CPU.

    Raises:
        ValueError: it is not.
    """
    if not (tensor.shape == shape and tensor.dtype is dtype and tensor.is_cpu and tensor.is_contiguous()):
        raise _unreadable(tensor, name, f"contiguous {dtype} {shape}")


def check_rows(tensor: Tensor, shape: tuple[int, int], name: str) -> None:
    """Check a float32 matrix as `check_plain` does, but let its rows have gaps between them.

    Raises:
        ValueError: it is not.
    """
    if not (tensor.shape == shape and tensor.dtype is torch.float32 and tensor.is_cpu and has_plain_rows(tensor)):
        raise _unreadable(tensor, name, f"contiguous rows of {torch.float32} {shape}")


def has_plain_rows(matrix: Tensor) -> bool:
    """Whether the rows of a matrix are contiguous and lie one behind the other, perhaps with gaps."""
    return matrix.is_contiguous() or (matrix.stride(1) == 1 and matrix.stride(0) >= matrix.shape[1])


def _unreadable(tensor: Tensor, name: str, needed: str) -> ValueError:
    found = f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
    return ValueError(f"{found}: native code needs {needed.replace('torch.', '')} on the CPU")
