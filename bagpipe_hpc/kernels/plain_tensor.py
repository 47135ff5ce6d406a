"""What native code may read: plain memory of a known shape."""

import torch
from torch import Tensor


def check_plain(
    tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, name: str = "tensor"
) -> None:
    """See that a tensor is what native code takes it for: contiguous, of this shape and type, on the CPU.

    Raises:
        ValueError: it is not.
    """
    is_plain = tensor.is_contiguous() and tensor.dtype == dtype and tensor.device.type == "cpu"
    if tuple(tensor.shape) != shape or not is_plain:
        found = f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{found}: native code needs contiguous {kind} {shape} on the CPU")
