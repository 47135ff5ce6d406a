"""The contract of code that sums dense gradients over the trainers; opens what `train.dense_sums` names."""

import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from bagpipe_hpc.config.doors import DENSE_SUMS
from bagpipe_hpc.mpi.requests import Awaited


class PendingDenseSum(Protocol):
    """A sum that is under way."""

    def is_complete(self) -> bool:
        """Whether the sum over all trainers is there; lets it go on if it can. Never waits."""

    def finish(self) -> None:
        """Put the sum, which must be complete, in the place of the gradients that were given."""


class DenseSums(Protocol):
    """Sums flat buffers of dense gradients over the trainers.

    It is made with a communicator of the trainers, which is mpi4py's and for it alone, and with `deterministic`:
    whether it must add in rank order. With one trainer it is made, too, and does nothing. Collective over: the
    trainers, when it is made and when it is closed.

    Attributes:
        trainers: their number.
        side_by_side: whether several sums proceed at the same time, so that more of them take no more latency.
    """

    trainers: int
    side_by_side: bool

    def sums_on(self, device: torch.device) -> bool:
        """Whether it sums gradients that are on a device; others are copied to main memory first."""

    def start(self, group: int, gradients: Tensor) -> PendingDenseSum:
        """Start summing float32 `[N]`, contiguous, of the same size on every trainer; left alone until `finish`.

        Every trainer starts the same groups in the same order, in one thread at a time.

        Args:
            group: number of the group of weights whose gradients they are, from 0.
            gradients: this trainer's; becomes the sum.
        """

    def advance(self) -> bool:
        """Move on what is under way, from another thread; returns whether to do so again soon. Never waits.

        It is called from the first `start` of a step until the sums were waited for, as soon as something is
        complete that `awaited` names, or, where that is None, every millisecond.
        """

    def awaited(self) -> list[Awaited] | None:
        """What must be complete before `advance` can do more; None if that is unknown, so that it is called often.

        Empty where nobody has to move sums on. It holds until `advance` is called again.
        """

    def close(self) -> None:
        """End it; nothing is under way."""


def open_dense_sums(name: str, comm: Any, *, deterministic: bool) -> DenseSums:
    """Make the sums of a name; what others would need is not imported.

    Args:
        name: `train.dense_sums`, `auto` settled.
        comm: as for `DenseSums`.
        deterministic: as for `DenseSums`.

    Collective over: the trainers.
    """
    kind: Callable[..., DenseSums] = DENSE_SUMS.implementation(name)
    return kind(comm, deterministic=deterministic)


def has_horovod() -> bool:
    """Whether Horovod is installed here; it is not imported."""
    return importlib.util.find_spec("horovod") is not None
