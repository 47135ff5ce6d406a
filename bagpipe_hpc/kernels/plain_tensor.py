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
        found = f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{found}: native code needs contiguous {kind} {shape} on the CPU")
