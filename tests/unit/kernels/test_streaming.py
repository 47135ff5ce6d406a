"""From which size on native code writes results past the caches (csrc/streaming.h)."""

from pathlib import Path

import pytest

from bagpipe_hpc.kernels import shared_library
from tests.instruction_sets import set_stream_bytes

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3")


@pytest.mark.parametrize("library", ["row_operations", "output_gradient"])
def test_half_of_the_last_cache_that_linux_names(library: str) -> None:
    """Not of what the C library says of some AMD processors: all of their caches together."""
    if not shared_library.is_built(library):
        pytest.skip(f"_{library}.so is not built")
    kilobytes = int((CACHE / "size").read_text().rstrip("K\n")) if CACHE.exists() else 0
    assert set_stream_bytes(library, 0) == max(kilobytes << 10, 16 << 20) // 2
