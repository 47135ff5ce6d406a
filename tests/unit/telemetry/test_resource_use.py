import mmap
import subprocess
import sys
import time

import numpy as np

from bagpipe_hpc.telemetry.resource_use import ResourceUse

PIECE = 64 << 20


TOUCHES = """
import numpy as np
from bagpipe_hpc.telemetry.resource_use import ResourceUse
before = ResourceUse.now()
np.ones(before.peak_bytes, dtype=np.uint8)
after = ResourceUse.now()
assert after.peak_bytes > before.peak_bytes
assert after.page_faults > before.page_faults
"""


def test_memory_that_was_touched_is_in_the_peak():
    """In a child of a shell: one of this process would begin with its peak, which is that of all tests before."""
    subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", TOUCHES], check=True)


def test_a_programs_name_may_be_any():
    """The kernel cuts it to 15 bytes, also within a letter."""
    code = """
from pathlib import Path
from bagpipe_hpc.telemetry.resource_use import ResourceUse
Path("/proc/self/comm").write_text("trainiere_größe")
assert ResourceUse.now().peak_bytes
"""
    subprocess.run([sys.executable, "-X", "utf8", "-c", code], check=True)


def test_shared_memory_is_told_apart():
    before = ResourceUse.now()
    with mmap.mmap(-1, PIECE) as shared:
        np.frombuffer(shared, dtype=np.uint8)[::4096].sum()
        memory = np.frombuffer(shared, dtype=np.uint8).copy()
        shared.write(memory.tobytes())
        touched = ResourceUse.now()
    assert touched.shared_bytes - before.shared_bytes >= PIECE


def test_processor_time_is_that_of_this_process():
    before = ResourceUse.now()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert ResourceUse.now().processor_s - before.processor_s >= 0.04
