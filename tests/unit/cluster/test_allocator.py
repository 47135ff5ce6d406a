"""Freed memory is kept, unless the environment says otherwise."""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory, keep_freed_arrays

PROGRAM = """
import ctypes, resource, sys
from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
if sys.argv[1] == "keep":
    keep_all_freed_memory()
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


def mallopt_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is asked of the C library from now on."""
    calls: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: calls.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    return calls


def test_a_training_rank_keeps_everything_but_what_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = mallopt_calls(monkeypatch)
    keep_all_freed_memory()
    assert calls == [(-8, 1), (-4, 0), (-1, -1), (-2, 64 << 20)]
    calls.clear()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    keep_all_freed_memory()
    assert calls == [(-4, 0), (-1, -1), (-2, 64 << 20)]


def test_a_preparation_keeps_the_arrays_of_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = mallopt_calls(monkeypatch)
    keep_freed_arrays()
    assert calls == [(-3, 32 << 20), (-1, 32 << 20)]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    keep_all_freed_memory()
    keep_freed_arrays()


def test_this_c_library_accepts_the_thresholds_of_a_preparation() -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        pytest.skip("not glibc")
    assert set_option(-3, 32 << 20) == 1
    assert set_option(-1, 32 << 20) == 1
