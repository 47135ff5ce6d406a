"""Simulated trainers carry plans out, without time or MPI, and refuse what cannot be carried out.

Arithmetic is in whole numbers. A row's value is an integer, and the gradient of a look-up depends on the value that was
read, so that a single stale, lost or doubled update changes the final tables. Rows are fetched as early or as late as
the engine's rules allow, since either may be what shows a broken rule. An update changes a row even where
gradients are zero, except for policies that add changes: there, as with SGD, the changes of several trainers must add
up to one update.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import Additions, BatchPlan, TrainerPlan
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.checking.additions import AddedRows, require_settled
from bagpipe_hpc.planning.checking.exchange import Copies, GradientsAtHomes

_PRIME = 2_147_483_629
_POISON = -(10**12)
GROWTH = 3
"""Factor of a row's value in an update, so that an update without gradients shows; 1 where updates are sums."""

Int64s = NDArray[np.int64]


def _gradient(values: Int64s, batch: int) -> Int64s:
    """The made-up gradient of look-ups that read `values` in `batch`; never 0, so a lost one shows."""
    return (values * 31 + batch * 7919 + 17) % _PRIME + 1


def train_plainly(
    batches: Sequence[Bags], total_rows: int, table: Int64s | None = None, growth: int = GROWTH
) -> Int64s:
    """The tables that plans must end in: every batch reads the tables and updates them before the next one.

    Args:
        batches: global rows of each batch.
        total_rows: rows of all tables.
        table: first values, int64 `[total_rows]`; the rows' numbers if left out.
        growth: factor of a row's value in an update.

    Returns:
        The values after all batches, int64 `[total_rows]`.
    """
    if table is None:
        table = np.arange(total_rows, dtype=np.int64)
    for number, rows in enumerate(batches):
        sums = np.zeros(total_rows, dtype=np.int64)
        np.add.at(sums, rows.values, _gradient(table[rows.values], number))
        table = np.where(sums > 0, _updated(table, sums, growth), table)
    return table


def _updated(values: Int64s, sums: Int64s, growth: int) -> Int64s:
    return (values * growth + sums) % _PRIME


class PlanExecutor:
    """Trainers with a row cache and a mover each, and one store, without time or MPI.

    Args:
        total_rows: rows of all tables; a row's first value is its number.
        trainers: number of trainers.
        shared: slots below this number hold the same row on every trainer.
        private: further slots of each trainer.
        eager: true: rows are fetched and written back as early as plans allow; false: as late.
        most_missing: where changes of rows are added, most updates of others that a look-up may miss; else None.
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        shared: int,
        private: int,
        *,
        eager: bool,
        most_missing: int | None = None,
    ) -> None:
        self.store = np.arange(total_rows, dtype=np.int64)
        self.fetches = self.write_backs = self.most_resident = 0
        self._caches = [np.full(shared + private, _POISON) for _ in range(trainers)]
        self._shared = shared
        self._slot_of: list[dict[int, int]] = [{} for _ in range(trainers)]  # row -> slot, for each trainer
        self._row_in: list[dict[int, int]] = [{} for _ in range(trainers)]  # slot -> row
        self._written: list[set[int]] = [set() for _ in range(trainers)]  # written back, still in their slots
        self._added = AddedRows(self.store, self._caches, most_missing or 0, _PRIME)
        self._eager, self._most_missing = eager, most_missing
        self._growth = GROWTH if most_missing is None else 1
        self._retired = 0
        self._to_retire: deque[BatchPlan] = deque()
        self._to_fetch: deque[BatchPlan] = deque()
        self._delayed: tuple[int, NDArray[np.int32], Int64s] | None = None
        self._late: tuple[int, GradientsAtHomes] | None = None
        self._alike: set[int] = set()  # rows that several homes hold, and update alike
        self._copies = Copies(self._caches, shared)
        self._plans: Sequence[BatchPlan] = ()

    def wanted_table(self, batches: Sequence[Bags]) -> Int64s:
        """The tables that a run of these batches must end in, int64 `[total_rows]`: those of plain training.

        Where look-ups may miss updates, they are the first tables plus all changes that were made.
        """
        if self._most_missing:
            return (np.arange(self.store.size) + self._added.changes) % _PRIME
        return train_plainly(batches, self.store.size, growth=self._growth)

    def run(self, plans: Sequence[BatchPlan], batches: Sequence[Bags]) -> None:
        """Carry out a segment, given the plans and the global rows of its batches.

        Raises:
            PlanError: a plan cannot be carried out.
        """
        self._retired = 0
        self._plans = plans
        self._to_fetch.extend(plan for plan in plans if not plan.shared.is_closing)
        if self._eager:
            self._prefetch()
        for number, plan in enumerate(plans):
            if plan.shared.batch != number:
                raise PlanError(f"plan {number} of a segment is of batch {plan.shared.batch}: batches count from 0")
            if plan.shared.is_closing:
                self._finish_delayed()
            else:
                self._read_early(number, plan, batches[number])
                self._wait_ready(plan)
                self._copies.send_rest(plan, self._row_in)
                self._step(number, plan, batches[number])
            if plan.shared.retire_group:
                self._to_retire.append(plan)
                if self._eager:
                    self._move_one()
        while self._to_retire:
            self._move_one()
        for trainer, rows in enumerate(self._row_in):
            if held := set(rows.values()) - self._written[trainer]:
                raise PlanError(
                    f"behind the closing plan trainer {trainer} still holds {len(held)} rows, row {min(held)} first"
                )

    def _read_early(self, number: int, plan: BatchPlan, rows: Bags) -> None:
        """Check that all micro-batches but the last find their rows before the batch's rows are fetched."""
        for trainer, (part, own) in enumerate(zip(plan.trainers, _slices_of(plan, rows), strict=True)):
            if part.micro_batches is None:
                continue
            early = own.part(0, int(part.micro_batches[:-1].sum())).values
            fetched = np.concatenate((plan.shared.fetch_rows, part.fetch_rows))
            if (missing := early[np.isin(early, fetched) | ~np.isin(early, list(self._slot_of[trainer]))]).size:
                raise PlanError(
                    f"batch {number}: row {missing[0]} is looked up by a micro-batch of trainer {trainer} before the "
                    "last one, and is not in its cache before the batch's rows are fetched"
                )

    def _wait_ready(self, plan: BatchPlan) -> None:
        if self._retired == 0:
            self._prefetch()
        while self._to_fetch and self._to_fetch[0].shared.batch <= plan.shared.batch:
            if not self._to_retire:
                raise PlanError(
                    f"batch {plan.shared.batch} waits for ever for group {plan.shared.prefetch_after} "
                    f"(prefetch_after): group {self._retired} is retired, and no plan before it retires another"
                )
            self._move_one()

    def _move_one(self) -> None:
        plan = self._to_retire.popleft()
        _require_one_way(plan)
        for trainer, part in enumerate(plan.trainers):
            for row, slot in zip(part.write_back_rows.tolist(), part.write_back_slots.tolist(), strict=True):
                if self._slot_of[trainer].get(row) != slot:
                    raise PlanError(
                        f"batch {plan.shared.batch}: trainer {trainer} writes row {row} back from slot {slot}; it is "
                        f"in {self._slot_of[trainer].get(row, 'none')}"
                    )
                self.store[row] = self._caches[trainer][slot]
                self.write_backs += 1
                for other in range(len(self._caches)) if slot < self._shared or row in self._alike else (trainer,):
                    if row in self._slot_of[other]:
                        self._written[other].add(row)
            if part.additions is not None:
                self._add(plan.shared.batch, trainer, part.additions)
        self._retired = plan.shared.retire_group
        self._prefetch()

    def _add(self, batch: int, trainer: int, additions: Additions) -> None:
        if np.unique(additions.rows).size != additions.rows.size:
            raise PlanError(f"batch {batch}: trainer {trainer} adds a row twice with one group")
        for row, slot, base in zip(*(part.tolist() for part in additions), strict=True):
            self._require_based(f"batch {batch}: trainer {trainer} adds row {row}", trainer, row, slot, base)
            self._added.add(trainer, row, slot, base)
            self._written[trainer].add(row)
            self.write_backs += 1

    def _require_based(self, where: str, trainer: int, row: int, slot: int, base: int) -> None:
        held = self._slot_of[trainer].get(row, "none"), self._added.base_of[trainer].get(row, "none")
        if held != (slot, base):
            raise PlanError(
                f"{where} from slot {slot} less base slot {base}; it is in {held[0]}, "
                f"and as it was fetched in {held[1]}"
            )

    def _prefetch(self) -> None:
        while self._to_fetch and self._to_fetch[0].shared.prefetch_after <= self._retired:
            plan = self._to_fetch.popleft()
            batch, shared = plan.shared.batch, plan.shared
            if plan.trainers[0].hosted is not None:
                rows, holders = np.unique(
                    np.concatenate([part.fetch_rows for part in plan.trainers]), return_counts=True
                )
                self._alike.update(rows[holders > 1].tolist())
            for trainer, part in enumerate(plan.trainers):
                self._fetch(batch, trainer, shared.fetch_rows, shared.fetch_slots, is_private=False)
                first = part.pulled.first
                self._fetch(batch, trainer, part.fetch_rows[:first], part.fetch_slots[:first], is_private=True)
                self._pull(batch, trainer, part)
                self.fetches += part.fetch_rows.size
            self.fetches += shared.fetch_rows.size
            resident = (len(held) - len(left) for held, left in zip(self._slot_of, self._written, strict=True))
            self.most_resident = max(self.most_resident, *resident)

    def _fetch(self, batch: int, trainer: int, rows: Int64s, slots: NDArray[np.int32], *, is_private: bool) -> None:
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            where = f"batch {batch}: trainer {trainer} fetches row {row} into slot {slot}"
            self._give_up(trainer, row)
            if row in self._slot_of[trainer]:
                raise PlanError(f"{where}, and still holds it in slot {self._slot_of[trainer][row]}")
            self._occupy(where, trainer, row, slot, is_private=is_private)
            self._slot_of[trainer][row] = slot
            self._caches[trainer][slot] = self.store[row]

    def _pull(self, batch: int, trainer: int, part: TrainerPlan) -> None:
        """Fetch rows into their bases."""
        pulled = part.pulled
        rows, bases = part.fetch_rows[pulled.new].tolist(), part.fetch_slots[pulled.new].tolist()
        for row, slot, base in zip(rows, pulled.new_slots.tolist(), bases, strict=True):
            where = f"batch {batch}: trainer {trainer} fetches row {row} into base slot {base}"
            self._fetch(batch, trainer, np.asarray([row]), np.asarray([slot], np.int32), is_private=True)
            self._occupy(where, trainer, row, base, is_private=True)
            self._added.fetch(trainer, row, slot, base)
        rows, bases = part.fetch_rows[pulled.merged].tolist(), part.fetch_slots[pulled.merged].tolist()
        for row, slot, base in zip(rows, pulled.merged_slots.tolist(), bases, strict=True):
            self._require_based(f"batch {batch}: trainer {trainer} merges row {row}", trainer, row, slot, base)
            self._added.merge(trainer, row, slot, base)

    def _occupy(self, where: str, trainer: int, row: int, slot: int, *, is_private: bool) -> None:
        """Put a row into a slot; a row that was written back and is still there is dropped."""
        held = self._row_in[trainer].get(slot)
        if held in self._written[trainer]:
            self._drop(trainer, held)
        elif held is not None:
            raise PlanError(f"{where}, which still holds row {held}")
        if (slot >= self._shared) != is_private or slot >= self._caches[trainer].size:
            kind = "private" if is_private else "shared"
            raise PlanError(
                f"{where}, which is no {kind} slot: {self._shared} are shared, {self._caches[trainer].size} there"
            )
        self._row_in[trainer][slot] = row

    def _give_up(self, trainer: int, row: int) -> None:
        """Drop a row that a trainer fetches: where it was written back, everywhere; where it was added, only here."""
        for other, written in enumerate(self._written):
            if row in written and (other == trainer or row not in self._added.base_of[other]):
                self._drop(other, row)

    def _drop(self, trainer: int, row: int) -> None:
        self._written[trainer].remove(row)
        del self._row_in[trainer][self._slot_of[trainer].pop(row)]
        if (base := self._added.base_of[trainer].pop(row, None)) is not None:
            del self._row_in[trainer][base]

    def _step(self, number: int, plan: BatchPlan, rows: Bags) -> None:
        shared_slots = np.concatenate((plan.shared.now_slots, plan.shared.later_slots))
        if self._eager:
            self._send_ahead(number)
        sums = []
        for trainer, (part, own) in enumerate(zip(plan.trainers, _slices_of(plan, rows), strict=True)):
            slots = np.concatenate((shared_slots, part.own_slots))
            read = self._read(number, trainer, part, slots, own.values)
            total = np.zeros(slots.size, dtype=np.int64)
            np.add.at(total, part.positions, _gradient(self._caches[trainer][read], number))
            sums.append(total)
        count, now = shared_slots.size, plan.shared.now_slots.size
        self._finish_delayed()
        if plan.trainers[0].exchange is not None:
            self._exchange(number, plan, [total[count:] for total in sums])
        else:
            for trainer, part in enumerate(plan.trainers):
                self._update(number, trainer, part.private_slots, sums[trainer][count:])
        reduced = np.sum([total[:count] for total in sums], axis=0)
        for trainer in range(len(self._caches)):
            self._update(number, trainer, plan.shared.now_slots, reduced[:now])
        self._delayed = (number, plan.shared.later_slots, reduced[now:])

    def _read(
        self, number: int, trainer: int, part: TrainerPlan, slots: NDArray[np.int32], own_rows: Int64s
    ) -> NDArray[np.int32]:
        """The slot of each look-up of a trainer, `[look-ups]`; each must hold the row that is looked up."""
        if part.positions.size != own_rows.size:
            raise PlanError(
                f"batch {number}: trainer {trainer} has {part.positions.size} positions, {own_rows.size} look-ups"
            )
        if part.positions.size and not 0 <= part.positions.min() <= part.positions.max() < slots.size:
            raise PlanError(f"batch {number}: trainer {trainer} has positions beyond its {slots.size} slots")
        read: NDArray[np.int32] = slots[part.positions]
        for row, slot in zip(own_rows.tolist(), read.tolist(), strict=True):
            if self._slot_of[trainer].get(row) != slot and not self._copies.has(trainer, row, slot, number):
                raise PlanError(
                    f"batch {number}: trainer {trainer} looks for row {row} in slot {slot}; it is in "
                    f"{self._slot_of[trainer].get(row, 'none')}"
                )
        if self._most_missing is not None:
            require_settled(number, trainer, own_rows, self._to_retire)
            self._added.read(number, trainer, own_rows, read)
        return read

    def _exchange(self, number: int, plan: BatchPlan, sums: Sequence[Int64s]) -> None:
        """Update rows at their homes, and send what the next batch reads of them."""
        at_home = GradientsAtHomes(plan, sums)
        for trainer, part in enumerate(plan.trainers):
            self._update(number, trainer, part.private_slots, at_home.solo(trainer))
            self._update(number, trainer, *at_home.now(trainer))
        self._copies.send_next(plan, self._row_in)
        self._late = number, at_home

    def _send_ahead(self, number: int) -> None:
        """Send the rest of the copies for the next batch before this one is computed."""
        self._finish_late()
        is_fetched = all(plan.shared.batch != number + 1 for plan in self._to_fetch)
        if is_fetched and not (following := self._plans[number + 1]).shared.is_closing:
            self._copies.send_rest(following, self._row_in)

    def _finish_late(self) -> None:
        if self._late is not None:
            number, at_home = self._late
            for trainer in range(len(self._caches)):
                self._update(number, trainer, *at_home.later(trainer))
            self._late = None

    def _finish_delayed(self) -> None:
        self._finish_late()
        if self._delayed is not None:
            number, slots, sums = self._delayed
            for trainer in range(len(self._caches)):
                self._update(number, trainer, slots, sums)
            self._delayed = None

    def _update(self, number: int, trainer: int, slots: NDArray[np.int32], sums: Int64s) -> None:
        if np.unique(slots).size != slots.size:
            raise PlanError(f"batch {number}: trainer {trainer} is to update a slot twice")
        if bases := set(slots.tolist()) & set(self._added.base_of[trainer].values()):
            slot = min(bases)
            raise PlanError(
                f"batch {number}: trainer {trainer} is to update slot {slot}, the base of row "
                f"{self._row_in[trainer][slot]}"
            )
        self._caches[trainer][slots] = _updated(self._caches[trainer][slots], sums, self._growth)
        rows = [self._row_in[trainer].get(slot, -1) for slot in slots.tolist()]
        self._written[trainer].difference_update(rows)
        if self._most_missing is not None:
            self._added.update(trainer, rows, slots, sums)


def _require_one_way(plan: BatchPlan) -> None:
    """Check that no row is both put and added with one group, by any trainers.

    Raises:
        PlanError: a row is: it would be chance which comes first.
    """
    put = [part.write_back_rows for part in plan.trainers]
    added = [part.additions.rows for part in plan.trainers if part.additions is not None]
    if added and (both := np.intersect1d(np.concatenate(put), np.concatenate(added))).size:
        raise PlanError(f"batch {plan.shared.batch}: row {both[0]} is written back and added with one group")


def _slices_of(plan: BatchPlan, rows: Bags) -> list[Bags]:
    """What each trainer's samples look up."""
    slices = pairwise(slice_bounds(rows.samples, len(plan.trainers)))
    return [
        rows.part(first, last) if part.samples is None else rows.take(part.samples)
        for part, (first, last) in zip(plan.trainers, slices, strict=True)
    ]
