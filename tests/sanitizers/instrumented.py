"""Pytest plugin: native libraries are those of `build/sanitizers/$BAGPIPE_SANITIZER`, and each of them is used.

`tests/sanitizers/run.sh` builds them and loads the sanitizer's runtime before Python starts.
"""

import os
from pathlib import Path

import pytest

from bagpipe_hpc.kernels import shared_library

ROOT = Path(__file__).parents[2]
KIND = os.environ["BAGPIPE_SANITIZER"]
FOLDER = ROOT / "build" / "sanitizers" / KIND
THREADED = {"block_file", "finite", "interaction", "layer_outputs", "output_gradient", "planner"}
THREADED |= {"request_watch", "row_operations"}
"""Libraries that start threads, or in which threads meet: the others have nothing for ThreadSanitizer."""

PRELOADED = os.environ.pop("LD_PRELOAD", "")
"""The sanitizer's runtime. Programs that a test starts do without it, unless the test hands it on."""


def pytest_configure() -> None:
    """Take the instrumented libraries.

    Raises:
        UsageError: the runtime is not there, so they would not load.
    """
    runtime = {"address": "libasan", "thread": "libtsan"}[KIND]
    if runtime not in maps():
        raise pytest.UsageError(f"{runtime} is not loaded: use tests/sanitizers/run.sh {KIND}")
    shared_library._FOLDER = FOLDER / "bagpipe_hpc" / "kernels"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a library was never loaded, or an ordinary one was: tests were skipped, or tested something else."""
    built = {source.stem for source in (ROOT / "bagpipe_hpc/kernels/csrc").glob("*.cpp")}
    expected = built & THREADED if KIND == "thread" else built
    loaded = maps()
    missing = sorted(name for name in expected if str(shared_library._path(name)) not in loaded)
    ordinary = sorted(name for name in built if str(ROOT / "bagpipe_hpc/kernels" / f"_{name}.so") in loaded)
    if missing or ordinary:
        message = f"libraries that no test has loaded: {missing}; loaded without sanitizer: {ordinary}"
        pytest.exit(f"{session.config.args}: {message}", returncode=1)


def maps() -> str:
    """The files that this process has mapped."""
    return Path("/proc/self/maps").read_text(encoding="utf-8")
