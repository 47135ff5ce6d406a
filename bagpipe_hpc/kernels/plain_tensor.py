"""What native code may read: plain memory of a known shape."""

import torch
from torch import Tensor


def check_plain(tensor: Tensor, shape: tuple[int, ...]) -> None:
    """See that a tensor is what native code takes it for: contiguous float32 of this shape, on the CPU.

    Raises:
        ValueError: it is not.
    """
    is_plain = tensor.is_contiguous() and tensor.dtype == torch.float32 and tensor.device.type == "cpu"
    if tuple(tensor.shape) != shape or not is_plain:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{found}: native code needs contiguous float32 {shape} on the CPU")
