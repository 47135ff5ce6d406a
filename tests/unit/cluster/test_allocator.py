"""Freed memory is kept, unless the environment says otherwise."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
from bagpipe_hpc.cluster.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.memset.restype = ctypes.c_void_p
libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]
def fill_a_buffer(size):
    buffer = libc.malloc(ctypes.c_size_t(size))
    libc.memset(buffer, 1, size)
    libc.free(buffer)
fill_a_buffer(64 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill_a_buffer(64 << 20)
fill_a_buffer(48 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are glibc's")
def test_a_large_buffer_is_faulted_in_once() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}

    def faults(how: str, **variables: str) -> int:
        command = [sys.executable, "-c", PROGRAM, how]
        return int(subprocess.run(command, env=plain | variables, check=True, capture_output=True).stdout)

    afresh = faults("leave")
    assert afresh >= 50  # 112 MiB, in pages of 2 MiB at most
    assert faults("keep") < afresh / 10
    assert faults("keep", MALLOC_MMAP_MAX_="65536") > afresh / 2
