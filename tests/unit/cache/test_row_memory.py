"""Reserved rows of a table are zeros like the others, and take memory once they are written."""

import ctypes
import mmap
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from bagpipe_hpc.cache import row_memory
from bagpipe_hpc.cache.row_cache import NO_ROW, RowCache
from bagpipe_hpc.cache.row_memory import new_table, trying_to_reserve
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.rows.record import RowRecord

CPU = torch.device("cpu")
MIB = 1 << 20
ROWS = 1 << 24
"""Of 64 numbers: 4 GiB."""
RESERVED = (range(1 << 15, ROWS // 2), range(ROWS // 2 + (1 << 15), ROWS - (1 << 15)))
"""All but three times 8 MiB."""


def resident_bytes(table: torch.Tensor) -> int:
    """Memory behind the addresses of a table, which begin a page."""
    pages = np.zeros(-(-table.nbytes // mmap.PAGESIZE), dtype=np.uint8)
    size, vector = ctypes.c_size_t(table.nbytes), pages.ctypes.data_as(ctypes.c_void_p)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(table.data_ptr()), size, vector) == 0
    return int((pages & 1).sum()) * mmap.PAGESIZE


def test_reserved_rows_take_memory_once_they_are_written() -> None:
    table = new_table(ROWS, 64, CPU, reserved=RESERVED)
    assert 24 * MIB <= resident_bytes(table) <= 32 * MIB
    for row in (0, (1 << 15) + 3, ROWS // 2 + 5, ROWS - 1):
        assert not table[row].any()
    held = resident_bytes(table)
    assert held <= 36 * MIB
    table[1 << 20 : (1 << 20) + (1 << 16)] = 1.0
    assert held + 16 * MIB <= resident_bytes(table) <= held + 24 * MIB
    assert table[(1 << 20) + 7].eq(1.0).all()


def test_all_rows_are_there_where_none_are_reserved() -> None:
    assert resident_bytes(new_table(1 << 15, 64, CPU)) >= 8 * MIB


def test_a_cache_counts_the_rows_that_are_held() -> None:
    record = RowRecord(64, (), has_version=True)
    reserved = (range(10, ROWS // 2), range(ROWS // 2 + 10, ROWS - 10))
    cache = RowCache(ROWS, record, row_operations("auto", CPU), CPU, reserved=reserved)
    assert cache.bytes == 30 * 4 * 65
    copies = torch.rand(1000, 65)
    cache.keep_copies(ROWS // 2, copies.numpy())
    slots = torch.arange(ROWS // 2, ROWS // 2 + 1000, dtype=torch.int32)
    assert cache.gather(slots).equal(copies[:, :64])
    assert cache.rows_in(slots).eq(NO_ROW).all()
    assert resident_bytes(cache.weights) <= 8 * MIB


def test_what_a_limited_process_cannot_reserve() -> None:
    """Where its address space is limited, which no memory behind the addresses has to do with."""
    with trying_to_reserve(1 << 40) as huge, trying_to_reserve(0) as nothing:
        assert huge
        assert nothing
    limited = textwrap.dedent(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 35, 1 << 35))
        from bagpipe_hpc.cache.row_memory import trying_to_reserve
        for size in 1 << 36, 1 << 20:
            with trying_to_reserve(size) as can:
                print(can)
        for _ in range(2):  # the body has them, and nobody has them behind it
            with trying_to_reserve(3 << 33) as one, trying_to_reserve(3 << 33) as another:
                print(one, another)
        """
    )
    told = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "True", *["True", "False"] * 2]


def test_a_system_that_promises_no_more_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(row_memory.mmap, "mmap", refuse)
    with trying_to_reserve(1) as can:
        assert not can
