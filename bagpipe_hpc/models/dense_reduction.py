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

    A group is one Horovod operation of fixed layout, and groups are not merged (`HOROVOD_DISABLE_GROUP_FUSION`), so a
    gradient is added in the same order in every run whatever the timing.

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
        self._groups = [list(group) for group in groups]
        self._ordered = deterministic and hvd.size() > 2
        self._timeout_s = timeout_s
        self._watch = watch
        self._missing = [len(group) for group in self._groups]
        self._handles: list[Any] = []
        if hvd.size() > 1:
            for number, group in enumerate(self._groups):
                for parameter in group:
                    hook = partial(self._gradient_is_there, number)
                    parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _gradient_is_there(self, number: int, _: Tensor) -> None:
        self._missing[number] -= 1
        if self._missing[number] == 0:
            gradients = [_gradient(parameter) for parameter in self._groups[number]]
            if self._ordered:
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                handle = hvd.allgather_async(flat.unsqueeze(0), name=f"dense.{number}")
            else:
                handle = hvd.grouped_allreduce_async_(gradients, op=hvd.Sum, name=f"dense.{number}")
            self._handles.append((number, handle))

    def wait(self) -> None:
        """Wait until every gradient holds its sum over all trainers.

        Raises:
            WaitTimeoutError: another trainer did not take part in time.
        """
        for number, handle in self._handles:
            self._wait_for(handle)
            result = hvd.synchronize(handle)
            if self._ordered:
                self._write_ordered_sum(number, result)
        self._handles.clear()
        self._missing = [len(group) for group in self._groups]

    def _wait_for(self, handle: Any) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not hvd.poll(handle):
            self._watch()
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"waited {self._timeout_s:.0f} s for the dense gradients of the other trainers")
            time.sleep(_POLL_S)

    def _write_ordered_sum(self, number: int, gathered: Tensor) -> None:
        total = gathered[0].clone()
        for part in gathered[1:]:
            total += part
        sizes = [parameter.numel() for parameter in self._groups[number]]
        for parameter, part in zip(self._groups[number], torch.split(total, sizes), strict=True):
            _gradient(parameter).copy_(part.view_as(parameter))


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "a hook runs after its gradient is there"
    return parameter.grad


def reduces_on_gpu() -> bool:
    """Whether this Horovod sums tensors that are on a GPU."""
    return bool(hvd.nccl_built())


def start_horovod(comm: Any) -> None:
    """Start Horovod on the trainers' communicator (an mpi4py one). Collective over: `comm`."""
    os.environ["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # see DenseReducer; read when Horovod starts
    hvd.init(comm=comm)


def stop_horovod() -> None:
    """End Horovod's background thread. Collective over: the trainers."""
    hvd.shutdown()
