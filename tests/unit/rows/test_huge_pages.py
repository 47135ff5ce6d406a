"""Linux is asked for huge pages of the whole array; what it says of the memory is in /proc/self/smaps."""

import mmap
import sys

import numpy as np
import pytest

from bagpipe_hpc.rows.huge_pages import ask_for_huge_pages
from tests.memory_flags import asked_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such pages")
BYTES = 1 << 25


@pytest.mark.parametrize("skipped", [0, 100])
def test_all_whole_pages_of_shared_memory_are_asked_for(skipped: int) -> None:
    """Also where the array begins within a page; its contents stay."""
    memory = np.frombuffer(mmap.mmap(-1, BYTES), dtype=np.float32)
    memory[:] = np.arange(memory.size)
    rows = memory[skipped:]
    if not ask_for_huge_pages(rows):
        pytest.skip("a kernel without huge pages")
    assert asked_bytes(rows.ctypes.data, rows.nbytes) >= rows.nbytes - 2 * mmap.PAGESIZE
    np.testing.assert_array_equal(memory, np.arange(memory.size, dtype=np.float32))


def test_little_memory_is_left_alone() -> None:
    memory = np.frombuffer(mmap.mmap(-1, 1 << 20), dtype=np.float32)
    assert not ask_for_huge_pages(memory)
    assert asked_bytes(memory.ctypes.data, memory.nbytes) == 0
