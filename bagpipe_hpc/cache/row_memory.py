"""Memory of a cache's tables: in huge pages where the system has them, since rows are read in random order.

Rows of a table may be *reserved*: they have addresses, and the system gives them memory, page by page, when one of them
is written. So a table can have rows for whatever may come, and take what it needs.
"""

import contextlib
import math
import mmap
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_RESERVING = _FLAGS | getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Python has `MAP_NORESERVE` from 3.13 on; the number is Linux's on x86 and Arm (`asm-generic/mman-common.h`)."""


def new_table(
    rows: int,
    columns: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    reserved: Sequence[range] = (),
) -> Tensor:
    """A table of zeros, `[rows, columns]`, whose pages are all there but those of reserved rows.

    In pages of 4 KiB nearly every row that is read costs a walk through page tables besides the read itself; in
    pages of 2 MiB the tables of a whole cache fit the processor's translation buffer.

    Args:
        rows: of the table.
        columns: of a row.
        device: where it lies.
        dtype: of its numbers.
        reserved: ranges of rows that take memory once they are used, ascending. Only a CPU's rows can be.
    """
    size = dtype.itemsize * math.prod((rows, columns))
    if device.type != "cpu" or size == 0:
        return torch.zeros(rows, columns, dtype=dtype, device=device)
    memory = mmap.mmap(-1, size, flags=_RESERVING if reserved else _FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    table = torch.frombuffer(memory, dtype=dtype).view(rows, columns)
    first = 0
    for behind in (*reserved, range(rows, rows)):
        table[first : behind.start].zero_()
        first = behind.stop
    return table


@contextlib.contextmanager
def trying_to_reserve(size: int) -> Iterator[bool]:
    """Whether this process may have `size` bytes of addresses without memory behind them; the body has them.

    It may not where its address space is limited (`ulimit -v`), or where the system promises no more memory than it has
    (`vm.overcommit_memory = 2`). There the processes of a host share what can be promised: several try at once.
    """
    try:
        memory = mmap.mmap(-1, max(1, size), flags=_RESERVING)
    except OSError:
        yield False
        return
    with memory:
        yield True
