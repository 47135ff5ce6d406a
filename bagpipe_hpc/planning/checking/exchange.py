"""What simulated trainers exchange where each row has one home; part of `executor`."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.batch_plan import BatchPlan, TrainerPlan
from bagpipe_hpc.plan.exchange import Counts, Exchange, Flow, Kind, Summed, pieces

Int64s = NDArray[np.int64]


def exchanged(part: TrainerPlan) -> Exchange:
    """What a trainer exchanges for a batch.

    Raises:
        PlanError: its part of the plan does not say.
    """
    found = part.exchanged
    if found is None:
        raise PlanError("a plan that exchanges rows with some trainers does so with all")
    return found


def carried(flows: Sequence[Flow], rows: Sequence[NDArray[Any]]) -> list[list[NDArray[Any]]]:
    """Carry rows of one kind to the trainers that they are for, in one hop or in two.

    Args:
        flows: the flow of each trainer.
        rows: what each trainer sends, `[N]`, ordered by receiver as in the grid's `sending_places`.

    Returns:
        For each trainer, what it receives from each.

    Raises:
        PlanError: a trainer expects another number of rows than is sent to it.
    """
    grid = flows[0].grid
    blocks = [_cut(own, flow.to.reshape(grid).sum(0)) for flow, own in zip(flows, rows, strict=True)]
    taken: list[list[NDArray[Any]]] = [[] for _ in flows]
    for relay, flow in enumerate(flows):
        row, column = grid.place(relay)
        parts = []
        for sender, counts in enumerate(_through(flow, relay), row * grid.columns):
            _require_rows(relay, sender, blocks[sender][column].size, counts.sum())
            parts.append(_cut(blocks[sender][column], counts))
        receivers = range(column, grid.trainers, grid.columns)
        for receiver, of_receiver in zip(receivers, zip(*parts, strict=True), strict=True):
            expected = flows[receiver].source.reshape(grid)[row].copy()
            if receiver == relay:
                expected[column] = 0  # its own rows stay where they are
            message = np.concatenate(of_receiver)
            _require_rows(receiver, relay, message.size, expected.sum())
            taken[receiver] += _cut(message, expected)
    return taken


def _through(flow: Flow, relay: int) -> Counts:
    """How many rows each trainer of a relay's row sends to each of its column, the relay included: `[C, R]`."""
    if not flow.grid.is_direct:
        return flow.relayed
    alone = flow.source[:, np.newaxis].copy()
    alone[relay] = 0
    return alone


def _require_rows(receiver: int, sender: int, sent: int, expected: int) -> None:
    if sent != expected:
        raise PlanError(f"trainer {receiver} expects {expected} rows of trainer {sender}, which sends {sent}")


def _cut(rows: NDArray[Any], counts: Counts) -> list[NDArray[Any]]:
    """Cut rows into consecutive parts of these sizes."""
    return [rows[piece] for piece in pieces(counts)]


class Copies:
    """Copies of rows in the caches of trainers that are not their homes.

    Args:
        caches: each trainer's values by slot, int64 `[slots]`.
        slots: how many slots, the first ones of each cache, are for copies.
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
            plan: the plan of the batch, whose rows are fetched.
            row_in: the row in each slot of each home.
        """
        batch = plan.shared.batch
        if plan.trainers[0].exchange is None or self._sent == batch:
            return
        self._sent = batch
        parts = [exchanged(part) for part in plan.trainers]
        sent = _flowing(parts, Kind.REST_COPIES, [part.rest_sent for part in parts])
        self._send(batch, sent, [part.counts.rest_slot for part in parts], row_in)

    def send_next(self, plan: BatchPlan, row_in: Sequence[dict[int, int]]) -> None:
        """Send the copies for the next batch of rows that this batch has just updated."""
        parts = [exchanged(part) for part in plan.trainers]
        sent = _flowing(parts, Kind.NEXT_COPIES, [part.next_sent for part in parts])
        self._send(plan.shared.batch + 1, sent, [part.counts.next_slot for part in parts], row_in)

    def _send(
        self,
        batch: int,
        sent: Sequence[Sequence[NDArray[np.int32]]],
        first_slots: Sequence[int],
        row_in: Sequence[dict[int, int]],
    ) -> None:
        for user, (first, of_homes) in enumerate(zip(first_slots, sent, strict=True)):
            free = count(first)
            for home, slots in enumerate(of_homes):
                for at_home, slot in zip(slots.tolist(), free, strict=False):
                    if at_home not in row_in[home] or slot >= self._slots:
                        raise PlanError(
                            f"batch {batch}: trainer {home} sends a copy of slot {at_home}, which holds "
                            f"{row_in[home].get(at_home, 'nothing')}, to slot {slot} of trainer {user}"
                        )
                    self._caches[user][slot] = self._caches[home][at_home]
                    self._held[user][slot] = row_in[home][at_home], batch


def _flowing(parts: Sequence[Exchange], kind: Kind, rows: Sequence[NDArray[Any]]) -> list[list[NDArray[Any]]]:
    """For each trainer, what it receives from each, of one kind of rows."""
    return carried([part.counts.flow(kind) for part in parts], rows)


class GradientsAtHomes:
    """The gradients of a batch as homes sum them.

    Args:
        plan: the plan of the batch.
        sums: gradients summed over each trainer's slice, int64 `[U]`, in the order of its slots.
    """

    def __init__(self, plan: BatchPlan, sums: Sequence[Int64s]) -> None:
        self._parts = [exchanged(part) for part in plan.trainers]
        self._slices = [
            np.split(own, np.cumsum(part.slice_parts(trainer.private_slots.size))[:-1])
            for own, part, trainer in zip(sums, self._parts, plan.trainers, strict=True)
        ]
        self._trainers = len(self._parts)
        self._given = []  # for now, then later: the gradients that each home gets from each trainer, itself included
        for part, kind in enumerate((Kind.NOW_GRADIENTS, Kind.LATER_GRADIENTS)):
            given = _flowing(self._parts, kind, [of_slice[part] for of_slice in self._slices])
            for home, of_users in enumerate(given):
                of_users[home] = self._slices[home][2 + part]
            self._given.append(given)

    def solo(self, home: int) -> Int64s:
        """The sums of rows that their home alone uses."""
        return self._slices[home][4]

    def now(self, home: int) -> tuple[NDArray[np.int32], Int64s]:
        """Slots and sums of rows that the next batch uses."""
        return self._total(home, [part.now for part in self._parts], self._given[0])

    def later(self, home: int) -> tuple[NDArray[np.int32], Int64s]:
        """Slots and sums of the other rows."""
        return self._total(home, [part.later for part in self._parts], self._given[1])

    def _total(
        self, home: int, summed: Sequence[Summed], given: Sequence[Sequence[Int64s]]
    ) -> tuple[NDArray[np.int32], Int64s]:
        """What a home sums; for rows that a trainer of each host holds, the sum over all of these trainers."""
        sums = _sum_at(home, summed[home], given[home])
        if hosted := summed[home].hosted:
            of_host = self._parts[home].hosted.of_host
            for peer in range(home % of_host, self._trainers, of_host):
                if peer == home:
                    continue
                if (others := summed[peer].hosted) != hosted:
                    raise PlanError(f"trainer {home} sums {hosted} rows with trainer {peer}, which sums {others}")
                sums[:hosted] += _sum_at(peer, summed[peer], given[peer])[:hosted]
        return summed[home].slots, sums


def _sum_at(home: int, summed: Summed, given: Sequence[Int64s]) -> Int64s:
    """The sums of the gradients that a home gets.

    Raises:
        PlanError: a trainer has another number of gradients than the home expects.
    """
    sums = np.zeros(summed.slots.size, dtype=np.int64)
    for user, (piece, own) in enumerate(zip(pieces(summed.sources), given, strict=True)):
        places = summed.places[piece]
        if own.size != places.size:
            raise PlanError(f"trainer {home} expects {places.size} gradients of trainer {user}, which has {own.size}")
        sums[places] += own
    return sums
