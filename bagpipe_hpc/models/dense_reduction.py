"""Sums dense gradients over the trainers through Horovod, while the backward pass still runs."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn

from bagpipe_hpc.errors import WaitTimeoutError

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
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        *,
        deterministic: bool,
        timeout_s: float,
        watch: Callable[[], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._watch = watch
        ordered = deterministic and _trainers() > 2
        self._groups = [
            _Group(parameters, f"dense.{number}", ordered=ordered)
            for number, parameters in enumerate(groups)
            if _trainers() > 1
        ]

    def wait(self) -> None:
        """Wait until every gradient holds its sum over all trainers.

        Raises:
            WaitTimeoutError: another trainer did not take part in time.
        """
        for group in self._groups:
            if group.handle is not None:
                self._wait_for(group.handle)
                group.finish()

    def _wait_for(self, handle: Any) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not hvd.poll(handle):
            self._watch()
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"waited {self._timeout_s:.0f} s for the dense gradients of the other trainers")
            time.sleep(_POLL_S)


class _Group:
    """Parameters whose gradients are one contiguous buffer when the backward pass has reached them all.

    Each gradient is copied there as it comes, which is the copy that Horovod would make of several tensors, and the
    parameter's `.grad` is then a view of the buffer: the sum needs no copy back. To Horovod the buffer is a group of
    one tensor: it may merge operations on single tensors, but not on groups (`HOROVOD_DISABLE_GROUP_FUSION`).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], name: str, *, ordered: bool) -> None:
        self.handle: Any = None
        self._name = name
        self._ordered = ordered
        self._missing = self._size = len(parameters)
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self._buffer = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
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
            if self._ordered:
                self.handle = hvd.allgather_async(self._buffer.unsqueeze(0), name=self._name)
            else:
                self.handle = hvd.grouped_allreduce_async_([self._buffer], op=hvd.Sum, name=self._name)

    def finish(self) -> None:
        """Take the result of the operation, which must be complete, into the gradients."""
        result = hvd.synchronize(self.handle)
        self.handle = None
        if self._ordered:
            self._buffer.copy_(result[0])
            for part in result[1:]:
                self._buffer += part


def reduces_on_gpu() -> bool:
    """Whether this Horovod sums tensors that are on a GPU."""
    return bool(hvd.nccl_built())


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
