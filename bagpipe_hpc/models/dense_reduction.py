"""Sums dense gradients over the trainers through Horovod, while the backward pass still runs."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.device import Device

_POLL_S = 50e-6


class DenseReducer:
    """Reduces each group of parameters as soon as its last gradient is there.

    A group's gradients lie in one buffer and are one Horovod operation, so a gradient is added in the same order in
    every run whatever the timing.

    Args:
        groups: parameters that are reduced together; the backward pass should finish the groups one after the other.
        deterministic: add in rank order (gather, then sum) instead of Horovod's order; with one or two trainers it
            cannot matter.
        timeout_s: longest wait for the other trainers.
        watch: called while waiting; raises if the wait has become pointless.
        staged_from: the gradients' device, where Horovod cannot sum them there (see `reduces_on`): each group is
            copied to main memory, and a thread starts its sum as soon as the copy is there.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        *,
        deterministic: bool,
        timeout_s: float,
        watch: Callable[[], None],
        staged_from: Device | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._watch = watch
        ordered = deterministic and _trainers() > 2
        self._groups: list[_Group] = []
        if _trainers() > 1:
            stage = _Stage(staged_from) if staged_from else None
            self._groups = [
                _Group(part, f"dense.{number}", stage, ordered=ordered) for number, part in enumerate(groups)
            ]

    def wait(self) -> None:
        """Wait until every gradient holds its sum over all trainers.

        Raises:
            WaitTimeoutError: another trainer did not take part in time.
        """
        for group in self._groups:
            if group.is_started:
                self._wait_for(group)
                group.finish()

    def _wait_for(self, group: "_Group") -> None:
        deadline = time.monotonic() + self._timeout_s
        while not group.is_summed():
            self._watch()
            if time.monotonic() > deadline:
                raise WaitTimeoutError.after(self._timeout_s, "the dense gradients of the other trainers")
            time.sleep(_POLL_S)


class _Group:
    """Parameters whose gradients are one contiguous buffer when the backward pass has reached them all.

    Each gradient is copied there as it comes, which is the copy that Horovod would make of several tensors, and the
    parameter's `.grad` is then a view of the buffer: the sum needs no copy back. To Horovod the buffer is a group of
    one tensor: it may merge operations on single tensors, but not on groups (`HOROVOD_DISABLE_GROUP_FUSION`).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], name: str, stage: "_Stage | None", *, ordered: bool) -> None:
        self._handle: Future[Any] | None = None
        self._name = name
        self._stage = stage
        self._ordered = ordered
        self._missing = self._size = len(parameters)
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self._buffer = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        self._summed = stage.new_buffer(sum(sizes)) if stage else self._buffer
        for parameter, part in zip(parameters, torch.split(self._buffer, sizes), strict=True):
            hook = partial(self._gradient_is_there, part.view_as(parameter))
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _gradient_is_there(self, place: Tensor, parameter: Tensor) -> None:
        assert parameter.grad is not None, "a hook runs after its gradient is there"
        place.copy_(parameter.grad)
        parameter.grad = place
        self._missing -= 1
        if self._missing == 0:
            self._missing = self._size
            if self._stage is not None:
                self._handle = self._stage.start_when_copied(self._buffer, self._summed, self._start)
            else:
                self._handle = Future()
                self._handle.set_result(self._start())

    def _start(self) -> Any:
        """Start the sum over the trainers; Horovod's handle of it."""
        if self._ordered:
            return hvd.allgather_async(self._summed.unsqueeze(0), name=self._name)
        return hvd.grouped_allreduce_async_([self._summed], op=hvd.Sum, name=self._name)

    @property
    def is_started(self) -> bool:
        """Whether all gradients have been there since the last `finish`."""
        return self._handle is not None

    def is_summed(self) -> bool:
        """Whether the sum over the trainers is complete."""
        assert self._handle is not None, "the backward pass has come first"
        return self._handle.done() and bool(hvd.poll(self._handle.result()))

    def finish(self) -> None:
        """Take the sum, which must be complete, into the gradients."""
        assert self._handle is not None, "the backward pass has come first"
        result = hvd.synchronize(self._handle.result())
        self._handle = None
        if self._ordered:
            self._summed.copy_(result[0])
            for part in result[1:]:
                self._summed += part
        if self._stage is not None:
            self._buffer.copy_(self._summed, non_blocking=True)


class _Stage:
    """Brings gradients to main memory for a Horovod that cannot sum them on their device.

    Args:
        device: where the gradients are.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "dense stage")

    def new_buffer(self, size: int) -> Tensor:
        """Memory for a group's gradients, float32 `[size]`."""
        return torch.from_numpy(self._device.new_array((size,)))

    def start_when_copied(self, gradients: Tensor, into: Tensor, start: Callable[[], Any]) -> Future[Any]:
        """Copy a group's gradients without waiting; a thread calls `start` when they are there."""
        copied = self._device.start_to_host(gradients, into)

        def start_late() -> Any:
            self._device.wait(copied)
            return start()

        return self._thread.submit(start_late)


def reduces_on(device: torch.device) -> bool:
    """Whether this Horovod sums tensors that are on a device."""
    return device.type == "cpu" or bool(hvd.nccl_built())


def start_horovod(comm: Any) -> None:
    """Start Horovod on the trainers' communicator (an mpi4py one), if there are several. Collective over: `comm`.

    Its thread wakes up at every cycle, ten thousand times a second, whether or not there is anything to sum.
    """
    if comm.Get_size() > 1:
        os.environ["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # see _Group; read when Horovod starts
        hvd.init(comm=comm)


def stop_horovod() -> None:
    """End Horovod's background thread, if there is one. Collective over: the trainers."""
    if hvd.is_initialized():
        hvd.shutdown()


def _trainers() -> int:
    """Number of trainers whose gradients are summed."""
    return int(hvd.size()) if hvd.is_initialized() else 1
