"""Batches of the samples that stay where a policy leaves some out: full ones, so that there are fewer of them. Pure.

The batches of a segment are taken in their order, and cut anew: a batch takes the next samples that stay, as many as
it had, also from batches behind its own. So batches are full but for the last before one that stays as it is, and the
last of the segment. What a segment has no samples for is passed over at its end: the next segment begins where it would
begin if none were left out. Numbers of steps are places in the data, and checkpoints need to know no more than these.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags, Int64s, joined
from bagpipe_hpc.plan.slices import BatchSlices, Slicing

Keep = Callable[[Bags], NDArray[np.bool_] | None]
"""Which samples of a batch stay, bool `[n]`, from its global rows; None for a batch that stays as it is, which no
sample of another one joins."""

_LARGEST = np.iinfo(np.int32).max
"""Number of a sample in a plan."""


def sliced(
    batches: Iterable[Bags], slicing: Slicing | None, keep: Keep | None
) -> Iterator[tuple[Bags, BatchSlices | None]]:
    """The batches that are trained on, each with its slices.

    Args:
        batches: global rows of a segment's batches, in order; all have as many samples as the first, but for the last.
        slicing: gives their slices; the planner does where it is not given.
        keep: which samples stay; all if it is not given.

    Raises:
        PlanError: `keep` gives something else than a bool for each sample, or a batch is too far from its place.
    """
    if keep is None:
        yield from ((rows, slicing(rows) if slicing else None) for rows in batches)
        return
    assert slicing is not None, "samples that stay are given to trainers"
    for rows, numbers in full_batches(batches, keep):
        slices = slicing(rows)
        yield rows, slices if numbers is None else replace(slices, numbers=numbers)


def full_batches(batches: Iterable[Bags], keep: Keep) -> Iterator[tuple[Bags, NDArray[np.int32] | None]]:
    """The batches of the samples that stay, in their order.

    One at least: where no sample of a segment stays, its first one does.

    Args:
        batches: as for `sliced`.
        keep: which samples stay.

    Yields:
        Global rows of a batch, and the numbers of its samples, int32 `[n]`, counted from the first sample of the batch
        in whose place it is; None for that batch as it is.
    """
    size = position = place = 0
    first: Bags | None = None
    waiting = _Waiting()
    for rows in batches:
        size = size or rows.samples
        first = rows if first is None else first
        kept = keep(rows)
        if kept is not None and (kept.shape != (rows.samples,) or kept.dtype != np.bool_):
            raise PlanError(
                f"the policy says by {kept.dtype} {list(kept.shape)} which samples stay, of a batch of {rows.samples}: "
                "give a bool for each"
            )
        if kept is None and waiting.samples:
            yield waiting.take(size, place * size)
            place += 1
        if not waiting.samples and position == place * size and (kept is None or kept.all()):
            yield rows, None
            place += 1
        elif kept is None:
            yield rows, _numbers(np.arange(position, position + rows.samples), place * size)
            place += 1
        else:
            chosen = np.flatnonzero(kept)
            waiting.add(rows.take(chosen), chosen + position)
            while waiting.samples >= size:
                yield waiting.take(size, place * size)
                place += 1
        position += rows.samples
    if waiting.samples:
        yield waiting.take(size, place * size)
    elif first is not None and not place:
        yield first.part(0, 1), np.zeros(1, dtype=np.int32)


class _Waiting:
    """Samples that stay and are in no batch yet."""

    def __init__(self) -> None:
        self._rows: list[Bags] = []
        self._positions: list[Int64s] = []
        self.samples = 0
        """Their number."""

    def add(self, rows: Bags, positions: Int64s) -> None:
        """Take in the samples at some positions of the segment, int64 `[n]`, which come next; there may be none."""
        if not rows.samples:
            return
        self._rows.append(rows)
        self._positions.append(positions)
        self.samples += rows.samples

    def take(self, most: int, origin: int) -> tuple[Bags, NDArray[np.int32]]:
        """The next samples, `most` of them or all that there are; numbers count from position `origin`."""
        rows, positions = joined(self._rows), np.concatenate(self._positions)
        taken = min(most, self.samples)
        self._rows, self._positions = [rows.part(taken, self.samples)], [positions[taken:]]
        self.samples -= taken
        return rows.part(0, taken), _numbers(positions[:taken], origin)


def _numbers(positions: Int64s, origin: int) -> NDArray[np.int32]:
    """Positions in a segment, as plans have them."""
    numbers = positions - origin
    if numbers.size and numbers[-1] > _LARGEST:
        raise PlanError(
            f"the policy leaves out so many samples that a batch is {numbers[-1]} behind its place in its segment, and "
            f"plans count to {_LARGEST}; set train.checkpoint_every_steps, so that segments are shorter"
        )
    return numbers.astype(np.int32)
