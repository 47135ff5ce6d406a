"""How a batch, or anything else with rows, is shared out: in contiguous slices, or as a policy says. Pure."""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags


def slice_bounds(samples: int, slices: int) -> list[int]:
    """Cut `samples` into contiguous slices whose sizes differ by at most one, larger ones first.

    Returns:
        `slices + 1` ascending bounds; slice r is samples `bounds[r]` up to `bounds[r + 1]`.
    """
    small, larger = divmod(samples, slices)
    return [r * small + min(r, larger) for r in range(slices + 1)]


def slice_samples(named: NDArray[np.int32] | None, samples: int, slices: int, number: int) -> NDArray[np.int64]:
    """Numbers within the batch of a slice's samples, int64 `[n]`.

    Args:
        named: those that a policy gives to it; None for the default slice.
        samples: of the batch.
        slices: of the batch.
        number: of the slice, from 0.
    """
    if named is not None:
        return named.astype(np.int64)
    bounds = slice_bounds(samples, slices)
    return np.arange(bounds[number], bounds[number + 1])


Assigned = NDArray[np.integer] | tuple[NDArray[np.integer], ...]
"""The samples of one trainer, in the order in which it computes them; or those of each of its micro-batches."""


@dataclass(frozen=True)
class BatchSlices:
    """Which samples of a batch each trainer has, and in which order.

    Attributes:
        bounds: first sample of each trainer's slice and the end of the last, `[trainers + 1]`.
        samples: the batch's samples, trainer after trainer, int32 `[n]`; None for the default: contiguous slices of
            the same size, in the batch's own order.
        micro_batches: for each trainer the number of samples in each of its micro-batches, int32; None where slices are
            computed whole.
        numbers: what trainers know the batch's samples by, int32 `[n]`: counted from the first sample of the batch in
            whose place it is (`plan.full_batches`); None for 0 to n - 1.
    """

    bounds: list[int]
    samples: NDArray[np.int32] | None = None
    micro_batches: tuple[NDArray[np.int32], ...] | None = None
    numbers: NDArray[np.int32] | None = None

    @classmethod
    def contiguous(cls, samples: int, trainers: int) -> "BatchSlices":
        """The default slices of a batch."""
        return cls(slice_bounds(samples, trainers))

    @classmethod
    def of(cls, assigned: Sequence[Assigned], samples: int, trainers: int) -> "BatchSlices":
        """The slices that a policy gives.

        Args:
            assigned: for each trainer its samples, integers `[its own number of samples]`, or those of each of its
                micro-batches, a tuple of such arrays.
            samples: of the batch.
            trainers: number of trainers.

        Raises:
            PlanError: not every sample is given to exactly one trainer, or something else than samples is given.
        """
        if not isinstance(assigned, Sized) or len(assigned) != trainers:
            given_to = len(assigned) if isinstance(assigned, Sized) else f"a {type(assigned).__name__} of"
            raise PlanError(f"the policy gives samples to {given_to} trainers, and there are {trainers}")
        parts = [_parts(part, trainer) for trainer, part in enumerate(assigned)]
        sizes = [np.asarray([len(micro_batch) for micro_batch in part], dtype=np.int32) for part in parts]
        bounds = np.cumsum([0, *(of_trainer.sum() for of_trainer in sizes)]).tolist()
        given = np.concatenate([np.empty(0, dtype=np.int64), *chain.from_iterable(parts)])
        whole = np.arange(samples)
        if not np.array_equal(np.sort(given), whole):
            in_one = set(given.tolist()) ^ set(whole.tolist())  # none if all that is wrong is that one comes twice
            wrong = next(iter(in_one), None)
            what = "a sample twice" if wrong is None else f"sample {wrong}" if wrong in given else f"no sample {wrong}"
            raise PlanError(f"the policy gives {what} of a batch of {samples}; give each sample to one trainer")
        if any(of_trainer.size != 1 for of_trainer in sizes):
            return cls(bounds, given.astype(np.int32), tuple(sizes))
        if bounds == slice_bounds(samples, trainers) and np.array_equal(given, whole):
            return cls(bounds)
        return cls(bounds, given.astype(np.int32))

    @property
    def whole(self) -> "BatchSlices":
        """The same, computed whole: what is done where nothing is trained."""
        return self if self.micro_batches is None else replace(self, micro_batches=None)

    @property
    def sample_count(self) -> int:
        """Samples of the batch."""
        return self.bounds[-1]

    @property
    def are_default(self) -> bool:
        """Whether trainers find their samples by themselves."""
        return self.samples is None and self.numbers is None

    def of_trainer(self, trainer: int) -> NDArray[np.int32] | None:
        """The numbers of one trainer's samples, int32; None for its default slice."""
        if self.are_default:
            return None
        first, last = self.bounds[trainer : trainer + 2]
        own = np.arange(first, last, dtype=np.int32) if self.samples is None else self.samples[first:last]
        return own if self.numbers is None else self.numbers[own]

    def micro_batches_of(self, trainer: int) -> NDArray[np.int32] | None:
        """Samples of each micro-batch of one trainer, int32; None for its whole slice."""
        return None if self.micro_batches is None else self.micro_batches[trainer]

    def parts(self, bags: Bags) -> list[Bags]:
        """What belongs to each trainer's samples."""
        arranged = self.arranged(bags)
        return [arranged.part(first, last) for first, last in pairwise(self.bounds)]

    def arranged(self, bags: Bags) -> Bags:
        """The bags of all samples in the order of the slices; the same object where that is their own order."""
        return bags if self.samples is None else bags.take(self.samples)


def _parts(given: Assigned, trainer: int) -> list[NDArray[np.integer]]:
    """The samples of each micro-batch of a trainer: of one, if it is given none."""
    parts = [np.asarray(part) for part in (given if isinstance(given, tuple) else (given,))]
    for part in parts:
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
            raise PlanError(
                f"the policy gives trainer {trainer} samples as {part.dtype} {list(part.shape)}: give their numbers, "
                "integers of one dimension"
            )
    return parts or [np.empty(0, dtype=np.int64)]


Slicing = Callable[[Bags], BatchSlices]
"""Gives the slices of a segment's batches: called with the global rows of each, in order."""


def dealt_whole(trainers: int) -> Slicing:
    """Give each batch to one trainer, in turn."""
    numbers = count()

    def slices(rows: Bags) -> BatchSlices:
        own = next(numbers) % trainers
        return BatchSlices.of(
            [np.arange(rows.samples if trainer == own else 0) for trainer in range(trainers)], rows.samples, trainers
        )

    return slices
