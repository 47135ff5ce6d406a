"""Sums dense gradients over the trainers through Horovod, in its background thread (`train.dense_sums=horovod`)."""

import os
from dataclasses import dataclass
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor

from bagpipe_hpc.mpi.requests import Awaited


@dataclass(frozen=True)
class _Reduction:
    """A sum in Horovod's order."""

    handle: Any

    def is_complete(self) -> bool:
        """Whether Horovod has finished it."""
        return bool(hvd.poll(self.handle))

    def finish(self) -> None:
        """Let Horovod forget it; it has put the sum in place."""
        hvd.synchronize(self.handle)


@dataclass(frozen=True)
class _Gathering:
    """The gradients of all trainers, which are added here, in rank order."""

    handle: Any
    gradients: Tensor

    def is_complete(self) -> bool:
        """Whether those of all trainers are there."""
        return bool(hvd.poll(self.handle))

    def finish(self) -> None:
        """Add them from the first trainer's to the last one's."""
        parts = hvd.synchronize(self.handle)
        self.gradients.copy_(parts[0])
        for part in parts[1:]:
            self.gradients.add_(part)


class HorovodSums:
    """The `DenseSums` of Horovod.

    Its thread meets those of the other trainers at every cycle, ten thousand times a second (`HOROVOD_CYCLE_TIME`),
    whether or not there is anything to sum, and spins until all have come. So it keeps a core busy.

    To Horovod a buffer is a group of one tensor: it may merge operations on single tensors, but not on groups
    (`HOROVOD_DISABLE_GROUP_FUSION`). So a gradient is added in the same order in every run whatever the timing.

    Args:
        comm: of the trainers, for Horovod's thread alone.
        deterministic: add in rank order (gather, then sum) instead of Horovod's order; with one or two trainers it
            cannot matter.
    """

    side_by_side = False  # its thread makes one after the other

    def __init__(self, comm: Any, *, deterministic: bool) -> None:
        self.trainers: int = comm.Get_size()
        self._ordered = deterministic and self.trainers > 2
        if self.trainers > 1:
            os.environ["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # read when Horovod starts
            hvd.init(comm=comm)

    def sums_on(self, device: torch.device) -> bool:
        """Main memory, and GPUs where Horovod was built with NCCL."""
        return device.type == "cpu" or bool(hvd.nccl_built())

    def start(self, group: int, gradients: Tensor) -> _Reduction | _Gathering:
        """Hand the gradients to Horovod's thread, by the name of their group."""
        name = f"dense.{group}"
        if self._ordered:
            return _Gathering(hvd.allgather_async(gradients.unsqueeze(0), name=name), gradients)
        return _Reduction(hvd.grouped_allreduce_async_([gradients], op=hvd.Sum, name=name))

    def advance(self) -> bool:
        """Nothing: Horovod's thread does that."""
        return False

    def awaited(self) -> list[Awaited]:
        """Nothing."""
        return []

    def close(self) -> None:
        """End Horovod's thread, if there is one."""
        if hvd.is_initialized():
            hvd.shutdown()
