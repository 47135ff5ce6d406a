"""What simulated trainers exchange where each row has one home; `plan_check` carries plans out with it."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.batch_plan import BatchPlan, TrainerPlan
from bagpipe_hpc.plan.exchange import Counts, Exchange, Summed, pieces

Int64s = NDArray[np.int64]


def exchanged(part: TrainerPlan) -> Exchange:
    """What a trainer exchanges for a batch.

    Raises:
        PlanError: its plan does not say.
    """
    found = part.exchanged
    if found is None:
        raise PlanError("a plan that exchanges rows with some trainers does so with all")
    return found


class Copies:
    """Copies of rows in the caches of trainers that are not their homes.

    Args:
        caches: values by slot, of each trainer.
        slots: the first slots of each cache are for copies.
    """

    def __init__(self, caches: Sequence[Int64s], slots: int) -> None:
        self._caches = caches
        self._slots = slots
        self._held: list[dict[int, tuple[int, int]]] = [{} for _ in caches]  # slot -> row, batch
        self._sent = -1

    def has(self, trainer: int, row: int, slot: int, batch: int) -> bool:
        """Whether a trainer has a copy of a row, made for a batch."""
        return self._held[trainer].get(slot) == (row, batch)

    def send_rest(self, plan: BatchPlan, row_in: Sequence[dict[int, int]]) -> None:
        """Send the rest of the copies for a batch, unless they were sent before.

        Args:
            plan: of the batch, whose rows are fetched.
            row_in: the row in each slot of each home.
        """
        batch = plan.shared.batch
        if plan.trainers[0].exchange is None or self._sent == batch:
            return
        self._sent = batch
        parts = [exchanged(part) for part in plan.trainers]
        sent = [[part.rest_sent[piece] for piece in pieces(part.counts.rest_to)] for part in parts]
        expected = [(part.counts.rest_slot, part.counts.rest_from) for part in parts]
        self._send(batch, sent, expected, row_in)

    def send_next(self, plan: BatchPlan, row_in: Sequence[dict[int, int]]) -> None:
        """Send the copies that the next batch gets as soon as this one has updated the rows."""
        parts = [exchanged(part) for part in plan.trainers]
        sent = [[part.next_sent[piece] for piece in pieces(part.counts.next_to)] for part in parts]
        expected = [(part.counts.next_slot, part.counts.next_from) for part in parts]
        self._send(plan.shared.batch + 1, sent, expected, row_in)

    def _send(
        self,
        batch: int,
        sent: Sequence[Sequence[NDArray[np.int32]]],
        expected: Sequence[tuple[int, Counts]],
        row_in: Sequence[dict[int, int]],
    ) -> None:
        for user, (first, counts) in enumerate(expected):
            free = count(first)
            for home, slots in enumerate(parts[user] for parts in sent):
                if slots.size != counts[home]:
                    raise PlanError(
                        f"batch {batch}: trainer {user} expects {counts[home]} copies of trainer {home}, which "
                        f"sends {slots.size}"
                    )
                for at_home, slot in zip(slots.tolist(), free, strict=False):
                    if at_home not in row_in[home] or slot >= self._slots:
                        raise PlanError(
                            f"batch {batch}: trainer {home} sends a copy of slot {at_home}, which holds "
                            f"{row_in[home].get(at_home, 'nothing')}, to slot {slot} of trainer {user}"
                        )
                    self._caches[user][slot] = self._caches[home][at_home]
                    self._held[user][slot] = row_in[home][at_home], batch


class HomeSums:
    """What homes sum of the gradients of a batch.

    Args:
        plan: of the batch.
        sums: of each trainer's slice, int64 `[U]`, in the order of its slots.
    """

    def __init__(self, plan: BatchPlan, sums: Sequence[Int64s]) -> None:
        self._parts = [exchanged(part) for part in plan.trainers]
        self._slices = [
            np.split(own, np.cumsum(part.slice_parts(trainer.private_slots.size))[:-1])
            for own, part, trainer in zip(sums, self._parts, plan.trainers, strict=True)
        ]

    def solo(self, home: int) -> Int64s:
        """The sums of rows that their home alone uses."""
        return self._slices[home][4]

    def now(self, home: int) -> tuple[NDArray[np.int32], Int64s]:
        """Slots and sums of rows that the next batch uses."""
        return self._total(home, self._parts[home].now, self._given(home, is_now=True))

    def later(self, home: int) -> tuple[NDArray[np.int32], Int64s]:
        """Slots and sums of the other rows."""
        return self._total(home, self._parts[home].later, self._given(home, is_now=False))

    def _total(self, home: int, summed: Summed, given: Sequence[Int64s]) -> tuple[NDArray[np.int32], Int64s]:
        sums = np.zeros(summed.slots.size, dtype=np.int64)
        for user, (piece, own) in enumerate(zip(pieces(summed.sources), given, strict=True)):
            places = summed.places[piece]
            if own.size != places.size:
                raise PlanError(
                    f"trainer {home} expects {places.size} gradients of trainer {user}, which has {own.size}"
                )
            sums[places] += own
        return summed.slots, sums

    def _given(self, home: int, *, is_now: bool) -> list[Int64s]:
        """The gradients that each trainer has for a home."""
        given = []
        for user, (part, of_slice) in enumerate(zip(self._parts, self._slices, strict=True)):
            copies, lent = of_slice[:2], of_slice[2:4]
            counts = part.counts.now_to if is_now else part.counts.later_to
            sent = copies[0 if is_now else 1][pieces(counts)[home]]
            given.append(lent[0 if is_now else 1] if user == home else sent)
        return given
