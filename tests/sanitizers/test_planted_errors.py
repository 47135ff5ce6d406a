"""A mistake in native code ends the process with the sanitizer's report: otherwise a clean run would say nothing."""

import os
import subprocess
import sys

import pytest

KIND = os.environ.get("BAGPIPE_SANITIZER")
pytestmark = pytest.mark.skipif(KIND is None, reason="runs in make test-sanitizers")

# `count` bytes in memory of Python's own, one beyond a NumPy array, one beyond a bytes object and its closing zero.
CALL = """
import ctypes, sys
import numpy as np
library, function, beyond_array, beyond_bytes = sys.argv[1:]
call = getattr(ctypes.CDLL(library), function)
call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
array = np.ones(16, dtype=np.uint8)
call(array.ctypes.data, array.size + int(beyond_array))
call.argtypes = [ctypes.c_char_p, ctypes.c_int64]
call(b"x" * 16, 16 + int(beyond_bytes))
"""
REPORTS = {
    "address": [
        ("no_error", 1, 0, "heap-buffer-overflow"),
        ("no_error", 0, 2, "heap-buffer-overflow"),
        ("read_after_free", 0, 0, "heap-use-after-free"),
        ("index_beyond_vector", 0, 0, "Assertion '__n < this->size()' failed"),
        ("overflow", 0, 0, "signed integer overflow"),
        ("shift_by_all_bits", 0, 0, "shift exponent 64 is too large"),
        ("misaligned", 0, 0, "misaligned address"),
    ],
    "thread": [("race", 0, 0, "data race")],
    None: [],
}


def call(function: str, *beyond: int) -> subprocess.CompletedProcess[str]:
    from tests.sanitizers.instrumented import FOLDER, PRELOADED

    return subprocess.run(
        [sys.executable, "-c", CALL, str(FOLDER / "planted_errors.so"), function, *map(str, beyond)],
        env=os.environ | {"LD_PRELOAD": PRELOADED},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_sound_code_runs_through() -> None:
    ended = call("no_error", 0, 0)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(("function", "beyond_array", "beyond_bytes", "report"), REPORTS[KIND])
def test_a_mistake_ends_the_process(function: str, beyond_array: int, beyond_bytes: int, report: str) -> None:
    ended = call(function, beyond_array, beyond_bytes)
    assert ended.returncode != 0
    assert report in ended.stderr


def test_programs_that_a_test_starts_have_no_sanitizer() -> None:
    assert "LD_PRELOAD" not in os.environ
