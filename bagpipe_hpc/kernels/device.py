"""A trainer's device: how arrays get there and back, and how its threads see each other's work on it.

A CPU has done its work when a call returns; a GPU does it later, for each thread in the order in which it was given. So
a thread marks a point in its own work, and another follows the mark; the host itself waits only for arrays that it
reads. What is copied to or from a GPU passes through pinned memory, which the GPU reads and writes by itself while the
thread goes on. Torch keeps such memory and gives it out again only after the copy, so that the next transfer takes
another piece: there are as many staging buffers as transfers under way.
"""

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Mark = torch.cuda.Event | None
"""A point in a thread's work on a device; None if it has been reached, as always on the CPU."""


class Device(Protocol):
    """What trainers ask of a device; every method concerns the calling thread.

    Attributes:
        torch_device: torch's name of it.
        computes_at_once: whether what a call computes is there when it returns.
    """

    torch_device: torch.device
    computes_at_once: bool

    def own_stream(self) -> AbstractContextManager[None]:
        """Give the thread's work in the body an order of its own, beside the work of other threads."""

    def mark(self) -> Mark:
        """The end of what the thread has given the device so far."""

    def follow(self, mark: Mark, *tensors: Tensor) -> None:
        """Let the device start the thread's later work only when it has reached a mark; the thread does not wait.

        Args:
            mark: another thread's.
            tensors: made by that thread, on the device; their memory is kept until this thread's work on them is done.
        """

    def wait(self, mark: Mark) -> None:
        """Wait until the device has reached a mark."""

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """An array's numbers on the device; the caller may drop the array then, but must not change it."""

    def to_host(self, values: Tensor) -> NDArray[Any]:
        """A tensor's numbers in main memory, once they are computed: it waits for them."""

    def start_to_host(self, values: Tensor, into: Tensor) -> Mark:
        """Start copying a tensor's numbers to memory from `new_array`; they are there when the mark is reached."""

    def new_array(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Main memory, float32 and not initialised, from where the device takes numbers the fastest."""


class Cpu:
    """The device whose memory is main memory: nothing is copied, and nothing has to be waited for."""

    torch_device = torch.device("cpu")
    computes_at_once = True

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """Compute what the thread asks torch for on that thread alone, except for MKL's products.

        Otherwise a large operation would give the thread a team of its own. The team would sleep nearly always, but
        GNU's OpenMP would count more threads than cores, and no longer let the compute thread's team spin until its
        next operation: it would have to be woken up for each (libgomp's manual, GOMP_SPINCOUNT).
        """
        before = torch.get_num_threads()  # a thread that has not asked yet gets the process's number now, not later
        _set_own_threads(1)
        try:
            yield
        finally:
            _set_own_threads(before)

    def mark(self) -> Mark:
        """None: what a thread has computed is there."""
        return None

    def follow(self, mark: Mark, *tensors: Tensor) -> None:
        """Nothing: marks of a CPU are reached when they are made."""

    def wait(self, mark: Mark) -> None:
        """Nothing, for the same reason."""

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """The array's numbers as a tensor; both share the memory."""
        return torch.from_numpy(array)

    def to_host(self, values: Tensor) -> NDArray[Any]:
        """The tensor's numbers as an array; both share the memory where the tensor is contiguous."""
        array: NDArray[Any] = values.contiguous().numpy()
        return array

    def start_to_host(self, values: Tensor, into: Tensor) -> Mark:
        """Copy at once; there is nothing to wait for."""
        into.copy_(values)
        return None

    def new_array(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Plain memory."""
        return np.empty(shape, dtype=np.float32)


class Gpu:
    """A GPU.

    Args:
        device: which one, with its number.
    """

    computes_at_once = False

    def __init__(self, device: torch.device) -> None:
        self.torch_device = device

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """A stream of the thread's own, of high priority, since other threads wait for what it brings."""
        with torch.cuda.stream(torch.cuda.Stream(self.torch_device, priority=-1)):  # type: ignore[no-untyped-call]
            yield

    def mark(self) -> Mark:
        """An event at the end of the thread's stream."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream())
        return event

    def follow(self, mark: Mark, *tensors: Tensor) -> None:
        """Let the thread's stream wait for the event; tensors' memory stays until the stream is done with it."""
        if mark is None:
            return
        self._stream().wait_event(mark)
        for tensor in tensors:
            tensor.record_stream(self._stream())

    def wait(self, mark: Mark) -> None:
        """Wait for the event; the core and Python are free for other threads meanwhile."""
        if mark is not None:
            mark.synchronize()

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Copy to the device; an array that did not come from `new_array` is copied to pinned memory first."""
        values = torch.from_numpy(array)
        if values.numel() == 0:
            return values.to(self.torch_device)
        return values.pin_memory().to(self.torch_device, non_blocking=True)

    def to_host(self, values: Tensor) -> NDArray[Any]:
        """Copy to pinned memory and wait for it."""
        pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self.wait(self.start_to_host(values, pinned))
        array: NDArray[Any] = pinned.numpy()
        return array

    def start_to_host(self, values: Tensor, into: Tensor) -> Mark:
        """Copy without waiting, in the thread's stream."""
        into.copy_(values, non_blocking=True)
        return self.mark()

    def new_array(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Pinned memory, which the device reads by itself."""
        array: NDArray[np.float32] = torch.empty(shape, dtype=torch.float32, pin_memory=True).numpy()
        return array

    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.torch_device)


def open_device(device: torch.device) -> Device:
    """Make a device the calling thread's own, and say how to work with it."""
    if device.type == "cpu":
        return Cpu()
    if device.index is None:
        device = torch.device(device.type, torch.cuda.current_device())
    torch.cuda.set_device(device)
    return Gpu(device)


def _set_own_threads(count: int) -> None:
    """Set how many threads OpenMP, where there is one, gives the calling thread.

    `torch.set_num_threads` would also change MKL's number, which is that of all threads.
    """
    if set_threads := getattr(ctypes.CDLL(None), "omp_set_num_threads", None):
        set_threads(count)
