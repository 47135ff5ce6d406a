"""What native code shares out over threads is done where they cannot all be started, too."""

import subprocess
import sys

import pytest

from bagpipe_hpc.kernels.shared_library import is_built

# 32 threads would be started for 32 MB; there is address space for the stacks of a few.
GATHER = """
import ctypes, resource
import numpy as np
from bagpipe_hpc.kernels import shared_library

library = shared_library.load("row_operations")
table = np.arange(1 << 22, dtype=np.float32).reshape(-1, 64)
slots = np.random.default_rng(1).permutation(len(table)).astype(np.int32)
found = np.full(table.shape, -1, dtype=np.float32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), -1))
tables, widths = (ctypes.c_void_p * 1)(table.ctypes.data), (ctypes.c_int64 * 1)(64)
library.gather_records.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
library.gather_records.argtypes += [ctypes.c_void_p, ctypes.c_int32]
library.gather_records.restype = None
library.gather_records(tables, widths, 1, slots.ctypes.data, len(slots), found.ctypes.data, 32)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert (found == table[slots]).all()
"""


@pytest.mark.skipif(not is_built("row_operations"), reason="_row_operations.so is not built")
def test_threads_that_do_not_start_leave_their_share_to_the_caller() -> None:
    ended = subprocess.run([sys.executable, "-c", GATHER], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
