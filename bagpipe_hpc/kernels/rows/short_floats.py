"""Float32 numbers in 16 bits, for sums of row gradients on their way between trainers (`train.row_sums`).

`bfloat16` keeps float32's range and 8 bits of a number. `float16` keeps 11 bits of numbers from 6.1e-5 to 65,504, and
fewer of smaller ones; gradients of a mean over thousands of samples are smaller still. So they are scaled by a power
of two, which costs no bit: the largest that is at most the size of the batch. What travels is then as large as
gradients of single samples. It is 4,096 at most, since the last batch of an epoch may have a single sample: gradients
up to 15 never overflow.

All rounding is to the nearest number, to even in the middle (IEEE 754), which has one result on every device.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MOST_SCALE = 4096
Packed = NDArray[np.int16]
"""The bits of numbers in 16 bits each."""


class ShortFloats:
    """One kind of 16-bit numbers.

    Args:
        kind: `torch.bfloat16` or `torch.float16`.
        scale: a power of two that numbers are multiplied by before they are rounded.
    """

    def __init__(self, kind: torch.dtype, scale: float) -> None:
        self._kind = kind
        self._scale = scale

    def rounded(self, values: Tensor) -> Tensor:
        """The numbers as they arrive at another trainer, float32 of any shape; what is too large becomes infinite."""
        return self._short(values).float().mul_(1 / self._scale)

    def pack(self, values: Tensor) -> Tensor:
        """The bits of numbers, int16 of the shape and on the device of `values`, which are float32."""
        return self._short(values).view(torch.int16)

    def pack_array(self, values: NDArray[np.float32]) -> Packed:
        """As `pack`, in main memory."""
        packed: Packed = self.pack(torch.from_numpy(values)).numpy()
        return packed

    def unpack(self, packed: Packed, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Write the numbers whose bits are given to `values`, of the same shape, and return these."""
        torch.from_numpy(values).copy_(torch.from_numpy(packed).view(self._kind)).mul_(1 / self._scale)
        return values

    def _short(self, values: Tensor) -> Tensor:
        return (values * self._scale if self._scale != 1 else values).to(self._kind)


def short_floats(name: str, batch_samples: int) -> ShortFloats | None:
    """What `train.row_sums` names.

    Args:
        name: `float32`, `bfloat16` or `float16`.
        batch_samples: `train.batch_size`.

    Returns:
        None for `float32`.
    """
    if name == "bfloat16":
        return ShortFloats(torch.bfloat16, 1.0)
    if name == "float16":
        return ShortFloats(torch.float16, min(2.0 ** math.floor(math.log2(batch_samples)), _MOST_SCALE))
    return None
