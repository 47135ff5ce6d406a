"""Memory of a cache's tables: in huge pages where the system has them, since rows are read in no order."""

import contextlib
import math
import mmap

import torch
from torch import Tensor


def new_table(rows: int, columns: int, device: torch.device) -> Tensor:
    """A table of zeros, float32 `[rows, columns]`, whose pages are all there.

    In pages of 4 KiB nearly every row that is read costs a walk through page tables besides the read itself; in
    pages of 2 MiB the tables of a whole cache fit the processor's translation buffer.
    """
    size = 4 * math.prod((rows, columns))
    if device.type != "cpu" or size == 0:
        return torch.zeros(rows, columns, device=device)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32).view(rows, columns).zero_()
