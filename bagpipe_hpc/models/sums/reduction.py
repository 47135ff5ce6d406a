"""Sums dense gradients over the trainers while the backward pass still runs."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor, nn

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.models.complete_gradients import ONE_PASS
from bagpipe_hpc.models.sums.contract import DenseSums, PendingDenseSum
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.waiting import Haste, Waits


class DenseReducer:
    """Reduces each group of parameters as soon as its last gradient is there, and those of earlier groups are.

    A group's gradients lie in one buffer and are one operation, and groups start in their order, whatever the timing
    and whatever a trainer's slice is.

    Args:
        groups: parameters that are reduced together; the backward pass should finish the groups one after the other.
        sums: over the trainers.
        waits: how the compute thread waits for the other trainers.
        device: where the gradients are. Where `sums` are not made there, each group is copied to main memory, and a
            thread starts its sum as soon as the copy is there.
        ring: called when sums begin that `advance` moves on.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        sums: DenseSums,
        *,
        waits: Waits,
        device: Device,
        ring: Callable[[], None],
    ) -> None:
        self._ring = ring
        self._sums = sums
        self._waits = waits
        self._groups: list[_Group] = []
        if sums.trainers > 1:
            stage = None if sums.sums_on(device.torch_device) else _Stage(device)
            self._groups = [
                _Group(part, partial(self._start_sum, number), stage, self._start_ready)
                for number, part in enumerate(groups)
            ]
        self._started = 0
        self._unfinished = set(range(len(self._groups)))

    def _start_sum(self, number: int, gradients: Tensor) -> PendingDenseSum:
        """Start the sum of a group, and wake whoever moves it on, where somebody has to."""
        pending = self._sums.start(number, gradients)
        if self._sums.awaited() != []:
            self._ring()
        return pending

    def begin_pass(self, *, is_last: bool) -> None:
        """Say before a backward pass whether it is the step's last: gradients of its passes add up before their sum."""
        for group in self._groups:
            group.counts = is_last

    def _start_ready(self) -> None:
        """Start the groups whose turn it is."""
        while self._started < len(self._groups) and self._groups[self._started].is_ready:
            self._start_next()

    def _start_next(self) -> None:
        number = self._started
        self._started += 1  # before the start, which rings: whoever is woken calls `awaited` at once
        self._groups[number].start()

    def advance(self) -> Haste:
        """Move sums on while the backward pass runs, from another thread. Never waits.

        Returns:
            How soon to call it again.
        """
        if self._sums.advance():
            return Haste.SOON
        return Haste.CALM if self.awaited() != [] else Haste.NONE

    def awaited(self) -> list[Awaited] | None:
        """What must come before `advance` can do more; see `DenseSums.awaited`."""
        return self._sums.awaited() if self._started else []

    def start_rest(self) -> None:
        """Start the sums that are left, after the last backward pass.

        A gradient to which the last of several passes has added nothing is complete, too.
        """
        while self._started < len(self._groups):
            self._start_next()

    def finish(self, number: int) -> None:
        """Wait until every gradient of a group holds its sum over all trainers; all groups have started.

        Raises:
            WaitTimeoutError: another trainer did not take part in time.
        """
        group = self._groups[number]
        self._waits.until(group.is_summed, "the dense gradients of the other trainers")
        group.finish()
        self._unfinished.remove(number)
        if not self._unfinished:
            self._started = 0
            self._unfinished = set(range(len(self._groups)))

    def wait(self) -> None:
        """Wait until every gradient holds its sum over all trainers.

        Raises:
            WaitTimeoutError: as for `finish`.
        """
        self.start_rest()
        for number in sorted(self._unfinished):
            self.finish(number)


class _Group:
    """Parameters whose gradients are one contiguous buffer when the backward pass has reached them all.

    Each gradient is copied there as it comes, which is the copy that Horovod would make of several tensors, and the
    parameter's `.grad` is then a view of the buffer: the sum needs no copy back.

    Args:
        parameters: of the group.
        start_sum: starts to sum a buffer.
        stage: to main memory; None where gradients are summed where they are.
        is_there: called when the last gradient is there.

    Raises:
        ConfigError: by a backward pass, where a parameter's gradient comes a second time before `finish`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        start_sum: Callable[[Tensor], PendingDenseSum],
        stage: "_Stage | None",
        is_there: Callable[[], None],
    ) -> None:
        self._pending: Future[PendingDenseSum] = Future()
        self._start_sum = start_sum
        self._stage = stage
        self._is_there = is_there
        self.counts = True
        """Whether this is the last pass, whose gradients complete those of the ones before."""
        self._all = frozenset(range(len(parameters)))
        self._missing = set(self._all)
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self._buffer = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        self._summed = stage.new_buffer(sum(sizes)) if stage else self._buffer
        for number, (parameter, part) in enumerate(zip(parameters, torch.split(self._buffer, sizes), strict=True)):
            hook = partial(self._gradient_is_there, number, part.view_as(parameter))
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _gradient_is_there(self, number: int, place: Tensor, parameter: Tensor) -> None:
        assert parameter.grad is not None, "a hook runs after its gradient is there"
        if self.counts and number not in self._missing:
            raise ConfigError(
                f"a weight of shape {list(parameter.shape)} got gradients in several backward passes of a step, which "
                f"batch.backward(loss) has one of: {ONE_PASS}"
            )
        place.copy_(parameter.grad)
        parameter.grad = place
        if self.counts:
            self._missing.discard(number)
            if not self._missing:
                self._is_there()

    @property
    def is_ready(self) -> bool:
        """Whether all gradients are there."""
        return not self._missing

    def start(self) -> None:
        """Start the sum over the trainers; all gradients are there."""
        if self._stage is not None:
            start = partial(self._start_sum, self._summed)
            self._pending = self._stage.start_when_copied(self._buffer, self._summed, start)
        else:
            self._pending = Future()
            self._pending.set_result(self._start_sum(self._summed))

    def is_summed(self) -> bool:
        """Whether the sum over the trainers is complete; it has been started."""
        return self._pending.done() and self._pending.result().is_complete()

    def finish(self) -> None:
        """Take the sum, which must be complete, into the gradients."""
        self._missing = set(self._all)
        self._pending.result().finish()
        if self._stage is not None:
            self._buffer.copy_(self._summed, non_blocking=True)


class _Stage:
    """Brings gradients to main memory, where they cannot be summed on their device.

    Args:
        device: where the gradients are.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "dense stage")

    def new_buffer(self, size: int) -> Tensor:
        """Memory for a group's gradients, float32 `[size]`."""
        return torch.from_numpy(self._device.new_array((size,)))

    def start_when_copied(
        self, gradients: Tensor, into: Tensor, start: Callable[[], PendingDenseSum]
    ) -> Future[PendingDenseSum]:
        """Copy a group's gradients without waiting; a thread calls `start` when they are there."""
        copied = self._device.start_to_host(gradients, into)

        def start_late() -> PendingDenseSum:
            self._device.wait(copied)
            return start()

        return self._thread.submit(start_late)
