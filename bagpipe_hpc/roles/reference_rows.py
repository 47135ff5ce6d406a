"""How the reference updates the rows of a batch: by the sum of its slices' gradients, or by what each slice changes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.kernels.rows.short_floats import ShortFloats
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import BatchSlices
from bagpipe_hpc.step.compute import ComputeParts


class GroupBatch(NamedTuple):
    """A batch's rows in one group of tables: the distinct ones `[U]`, and for each slice its look-ups among them."""

    unique: np.ndarray
    positions: list[np.ndarray]

    @classmethod
    def of(cls, rows: Bags, slices: BatchSlices) -> "GroupBatch":
        """The rows of a batch, by their numbers in the group."""
        used = slices.arranged(rows)
        unique, inverse = np.unique(used.values, return_inverse=True)
        positions = replace(used, values=inverse)
        return cls(unique, [positions.part(first, last).values for first, last in pairwise(slices.bounds)])


def as_slots(rows: NDArray[np.int64], device: Device) -> Tensor:
    """Rows `[N]` as the slots that they are in, int32, on the device."""
    return device.to_device(rows.astype(np.int32))


class BatchUpdate(ABC):
    """Takes the gradients of one slice of a batch after the other, and then updates the rows.

    Args:
        parts: rows and their optimizer; row k is in slot k.
        groups: the rows of the batch in each group of tables.
        short: rounds what would travel between trainers; None where nothing is rounded.
        step: number of the training step, from 1.
    """

    def __init__(self, parts: ComputeParts, groups: Sequence[GroupBatch], short: ShortFloats | None, step: int) -> None:
        self._parts, self._groups, self._short, self._step = parts, groups, short, step

    def _rounded(self, sums: Tensor) -> Tensor:
        return sums if self._short is None else self._short.rounded(sums)

    @abstractmethod
    def add(self, slice_number: int, sums: Mapping[int, Tensor]) -> None:
        """Take the gradients of a slice, summed for each distinct row of the batch, by group, float32 `[U, D]`."""

    @abstractmethod
    def finish(self) -> None:
        """Update the rows, when all slices are in."""


class BySums(BatchUpdate):
    """Each row by the sum of its gradients: slice 0, 1, 2, ... are added to zero."""

    def __init__(self, parts: ComputeParts, groups: Sequence[GroupBatch], short: ShortFloats | None, step: int) -> None:
        super().__init__(parts, groups, short, step)
        self._slices = 0  # that are in
        self._totals = [
            torch.zeros(batch.unique.size, cache.width, device=parts.device.torch_device)
            for batch, cache in zip(groups, parts.caches, strict=True)
        ]

    def add(self, slice_number: int, sums: Mapping[int, Tensor]) -> None:  # noqa: ARG002
        """As `BatchUpdate.add`."""
        self._slices += 1
        for group, own in sums.items():
            self._totals[group] += self._rounded(own)

    def finish(self) -> None:
        """As `BatchUpdate.finish`."""
        for group, (batch, total) in enumerate(zip(self._groups, self._totals, strict=True)):
            # As from three trainers on, whose sums travel too.
            summed = self._rounded(total) if self._slices > 2 else total
            self._parts.update_rows(group, as_slots(batch.unique, self._parts.device), summed, self._step)


class ByChanges(BatchUpdate):
    """Each row by the changes of slice 0, 1, 2, ..., added in this order, as under a policy with `adds_rows`.

    A slice's change is what an update by its own gradients alone makes of the row, less the row; all slices begin with
    the same row. Rows keep weights alone.
    """

    def __init__(self, parts: ComputeParts, groups: Sequence[GroupBatch], short: ShortFloats | None, step: int) -> None:
        super().__init__(parts, groups, short, step)
        self._changes: list[tuple[int, Tensor, NDArray[np.float32]]] = []

    def add(self, slice_number: int, sums: Mapping[int, Tensor]) -> None:
        """As `BatchUpdate.add`."""
        for group, own in sums.items():
            batch, cache = self._groups[group], self._parts.caches[group]
            used = np.unique(batch.positions[slice_number])
            slots = as_slots(batch.unique[used], self._parts.device)
            before = cache.gather_records(slots)
            gradients = self._rounded(own)[self._parts.device.to_device(used)]
            self._parts.update_rows(group, slots, gradients, self._step)
            self._changes.append((group, slots, cache.gather_records(slots) - before))
            cache.scatter(slots, before)

    def finish(self) -> None:
        """As `BatchUpdate.finish`."""
        for group, slots, changes in self._changes:
            cache = self._parts.caches[group]
            cache.scatter(slots, cache.gather_records(slots) + changes)
