"""Waits for what another thread does."""

import time
from collections.abc import Callable


def eventually(is_so: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether something is so within the time, in seconds."""
    deadline = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.001)
    return is_so()
