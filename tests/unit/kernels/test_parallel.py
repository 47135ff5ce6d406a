"""What native code shares out over threads: whose threads these are, and that all is done where some do not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bagpipe_hpc import kernels
from bagpipe_hpc.kernels.shared_library import is_built

SOURCES = Path(kernels.__file__).parent / "csrc"
LOOPS = Path(__file__).with_name("pieces_of_loops.cpp")


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that runs loops over threads of its own."""
    program = tmp_path_factory.mktemp("loops") / "pieces_of_loops"
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-pthread", f"-I{SOURCES}"]
    subprocess.run([*compiler, str(LOOPS), "-o", str(program)], check=True, timeout=120)
    return program


@pytest.mark.parametrize("threads", ["threads", "no thread starts"])
def test_each_place_of_a_loop_is_visited_once_and_the_least_of_values_kept(loops: Path, threads: str) -> None:
    arguments = [] if threads == "threads" else [threads]
    ended = subprocess.run([loops, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


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


# torch's threads sleep between its operations here, so their time is what they work. One that wakes up late may find
# that others have done all; so calls are repeated.
SHARED = """
import os, threading, time, torch
from pathlib import Path
from bagpipe_hpc.kernels.dense.interaction import NativeInteraction
from bagpipe_hpc.kernels.rows.native import NativeRowOperations

def tasks():
    return list(Path("/proc/self/task").iterdir())

def seconds_of_others():
    own = str(os.getpid())
    return sum(int((task / "schedstat").read_text().split()[0]) * 1e-9 for task in tasks() if task.name != own)

torch.set_num_threads(3)
bottom, embeddings = torch.rand(5000, 16), torch.rand(5000, 26, 16)
kernel, found = NativeInteraction(), []

def compute():
    found.append(kernel.forward(bottom, embeddings))

def gained_s(seconds, call):  # by as many calls as it takes to gain 10 ms
    before_s, give_up = seconds(), time.monotonic() + 30
    while (gained := seconds() - before_s) < 0.01 and time.monotonic() < give_up:
        call()
    return gained

def compute_elsewhere():
    compute()
    print(len(tasks()) - before - 1)

torch.rand(10**6).add(1)  # torch starts its threads
before = len(tasks())
compute()
print(gained_s(seconds_of_others, lambda: kernel.forward(bottom, embeddings)))
print(len(tasks()) - before)
other = threading.Thread(target=compute_elsewhere)
other.start()
other.join()
torch.set_num_threads(1)
compute()
assert all(torch.equal(one, found[0]) for one in found)

table, slots = torch.rand(100000, 64), torch.randperm(100000, dtype=torch.int32)
operations = NativeRowOperations(threads=3)  # more than torch has now
print(gained_s(lambda: time.process_time() - time.thread_time(), lambda: operations.gather(table, slots)))
"""


@pytest.mark.skipif(not is_built("interaction"), reason="_interaction.so is not built")
def test_the_main_thread_shares_out_over_torchs_threads_and_others_over_their_own() -> None:
    alone = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "3"}
    ended = subprocess.run(
        [sys.executable, "-c", SHARED], env=alone, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    seconds_of_torch, *left_behind, seconds_of_own = map(float, ended.stdout.split())
    assert seconds_of_torch >= 0.01
    assert left_behind == [0, 0]
    assert seconds_of_own >= 0.01
