"""A plain copy of as many bytes as an operation moves: what the machine allows it at best."""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_MOST_BYTES = 256 << 20
"""Larger copies run at the same speed."""


class PlainCopy:
    """Copies between two buffers on one device: `memcpy` in as many threads as asked for, or the GPU's copy.

    Args:
        device: where the buffers are.
        threads: CPU threads that share a copy.
    """

    def __init__(self, device: torch.device, threads: int) -> None:
        self._source = torch.ones(_MOST_BYTES, dtype=torch.uint8, device=device)
        self._target = torch.zeros(_MOST_BYTES, dtype=torch.uint8, device=device)
        self._device = device
        self._threads = threads
        self._helpers = ThreadPoolExecutor(max_workers=threads)

    def gb_per_s(self, moved_bytes: int) -> float:
        """Speed of one copy that reads half of `moved_bytes` and writes the other half, both counted."""
        copied = min(moved_bytes // 2, _MOST_BYTES)
        return 2 * copied / seconds(self._device, lambda: self._copy(copied)) / 1e9

    def _copy(self, copied: int) -> None:
        if self._device.type == "cuda":
            self._target[:copied].copy_(self._source[:copied])
            return
        bounds = [copied * part // self._threads for part in range(self._threads + 1)]
        parts = [self._helpers.submit(self._move, *bounds[part : part + 2]) for part in range(1, self._threads)]
        self._move(*bounds[:2])
        for part in parts:
            part.result()

    def _move(self, first: int, last: int) -> None:
        """`memcpy` without the GIL."""
        ctypes.memmove(self._target.data_ptr() + first, self._source.data_ptr() + first, last - first)


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    """How long `work` takes on a device: on a GPU the time between two events around it, without its launch."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
