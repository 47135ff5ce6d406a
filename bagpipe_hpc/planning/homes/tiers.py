"""Rows in tiers (FlexShard): some with every trainer, some with one trainer of each host, the others with one home.

Which rows are where is known from the start, so their slots are: the first private ones of every trainer. Trainers
h g to h g + g - 1 are on host h.

    everywhere   row j: slot j of every trainer; summed and updated by all, as a replicated row; written back by j mod T
    hosted       row j: of each host the trainer c = j mod g holds it, all in one slot. It gives copies to the trainers
                 of its host and takes their gradients, as a home does. What the holders have is added up from host to
                 host, all make the same update, and that of host 0 writes the row back
    the others   one home each, by the rules of a policy

A row of the first two tiers is fetched by all who hold it when any trainer uses it, and stays for the segment: a policy
says that it is never dead.

Legend: `U` unique rows of a batch, `P` pairs of a row and a trainer that uses it, `T` trainers, `g` trainers of a host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.exchange import Hosted
from bagpipe_hpc.planning.batch_rows import Bools, Int32s, Int64s, RetiredRows
from bagpipe_hpc.planning.homes.planner import ExchangePlanner, Held
from bagpipe_hpc.planning.homes.slots import HomeSlots, Placed, UsedBatch
from bagpipe_hpc.planning.slots import slots_used_up

_ONE_HOME, _HOSTED, _EVERYWHERE = range(3)


@dataclass(frozen=True)
class RowTiers:
    """Which rows are held by several trainers.

    Attributes:
        everywhere: by each of them, distinct, int64.
        hosted: by one of each host, distinct, int64; those of successive places are with different trainers.
        of_host: trainers g of a host, a divisor of all.
    """

    everywhere: Int64s
    hosted: Int64s
    of_host: int

    @property
    def slots(self) -> int:
        """Slots that they take of each trainer."""
        return self.everywhere.size - (-self.hosted.size // self.of_host)


class TieredSlots(HomeSlots):
    """Slots of rows in tiers.

    Args:
        total_rows: as for `HomeSlots`, like the others.
        trainers: number of trainers T.
        shared_capacity: slots for copies.
        private_capacity: further slots of each trainer; the first ones are for rows that several hold.
        tiers: which rows these are.
        settings: as for `HomeSlots`.
    """

    def __init__(
        self,
        total_rows: int,
        trainers: int,
        shared_capacity: int,
        private_capacity: int,
        *,
        tiers: RowTiers,
        **settings: Any,
    ) -> None:
        self._several = tiers.slots
        if private_capacity < self._several:
            raise slots_used_up("private", private_capacity, self._several)
        super().__init__(total_rows, trainers, shared_capacity, private_capacity - self._several, **settings)
        first = int(self._first_private)
        self._first_private = np.int32(first + self._several)
        self._of_host = tiers.of_host
        self._tier = np.zeros(total_rows, dtype=np.int8)
        self._holder = np.zeros(total_rows, dtype=np.int32)  # of host 0; of a row that all hold, who writes it back
        self._fixed = np.zeros(total_rows, dtype=np.int32)
        at_all, at_hosts = np.arange(tiers.everywhere.size), np.arange(tiers.hosted.size)
        self._tier[tiers.everywhere], self._tier[tiers.hosted] = _EVERYWHERE, _HOSTED
        self._holder[tiers.everywhere], self._holder[tiers.hosted] = at_all % trainers, at_hosts % self._of_host
        self._fixed[tiers.everywhere] = first + at_all
        self._fixed[tiers.hosted] = first + at_all.size + at_hosts // self._of_host

    @property
    def state_bytes(self) -> int:
        """Memory of the per-row state."""
        return super().state_bytes + self._tier.nbytes + self._holder.nbytes + self._fixed.nbytes

    @property
    def peaks(self) -> tuple[int, int]:
        """As `HomeSlots.peaks`, with the slots of rows that several hold."""
        copies, private = super().peaks
        return copies, self._several + private

    def are_hosted(self, rows: NDArray[np.integer]) -> Bools:
        """Rows that a trainer of each host holds."""
        found: Bools = self._tier[rows] == _HOSTED
        return found

    def are_everywhere(self, rows: NDArray[np.integer]) -> Bools:
        """Rows that all trainers hold."""
        found: Bools = self._tier[rows] == _EVERYWHERE
        return found

    def fixed_homes(self, rows: NDArray[np.integer]) -> tuple[Bools, Int32s]:
        """Which rows several trainers hold, and the first holder of each of those."""
        has_one = self._tier[rows] != _ONE_HOME
        return has_one, self._holder[rows[has_one]]

    def look_through(self, rows: Bags, bounds: Sequence[int]) -> UsedBatch:
        """As `HomeSlots.look_through`; rows that all trainers hold have no pairs."""
        batch = super().look_through(rows, bounds)
        kept = ~self.are_everywhere(batch.unique)[batch.pair_rows]
        return replace(batch, pair_rows=batch.pair_rows[kept], pair_users=batch.pair_users[kept])

    def pair_homes(
        self, unique: NDArray[np.integer], homes: NDArray[np.integer], rows: Int64s, users: Int64s
    ) -> NDArray[np.integer]:
        """The home, or who holds the row on the user's host."""
        of_host = users // self._of_host * self._of_host + self._holder[unique][rows]
        return np.where(self.are_hosted(unique)[rows], of_host, homes[rows])

    def can_fetch(self, batch: UsedBatch, settled: Placed) -> bool:
        """As `HomeSlots.can_fetch`; rows that several hold have their slots."""
        return super().can_fetch(batch, replace(settled, fetched=settled.fetched & ~self._are_fixed(batch)))

    def give_slots(self, batch: UsedBatch, settled: Placed) -> Int32s:
        """As `HomeSlots.give_slots`; rows that several hold have theirs."""
        fixed = self._are_fixed(batch)
        slots = self._from_pools(settled.slots, settled.homes, settled.fetched & ~fixed)
        return np.where(fixed, self._fixed[batch.unique], slots)

    def _are_fixed(self, batch: UsedBatch) -> Bools:
        found: Bools = self._tier[batch.unique] != _ONE_HOME
        return found

    def free(self, retired: RetiredRows) -> None:
        """Return the slots of a retired group, but those of rows that several hold."""
        pooled = [self._tier[rows] == _ONE_HOME for rows in retired.rows]
        parts = zip(retired.rows, retired.slots, retired.writers, pooled, strict=True)
        kept = [(rows[own], slots[own], writers[own]) for rows, slots, writers, own in parts]
        super().free(RetiredRows(*map(list, zip(*kept, strict=True))))


class TieredExchange(ExchangePlanner):
    """Plans for rows in tiers; a policy brings the rules for the others.

    Args:
        arguments: as for `ExchangePlanner`.
        tiers: which rows several trainers hold.
        settings: as for `ExchangePlanner`.
    """

    rows: TieredSlots

    def __init__(self, *arguments: Any, tiers: RowTiers, **settings: Any) -> None:
        self._tiers = tiers
        super().__init__(*arguments, **settings)

    def new_slots(self, *arguments: Any, **settings: Any) -> TieredSlots:
        """As `RulePlanner.new_slots`."""
        return TieredSlots(*arguments, tiers=self._tiers, **settings)

    @property
    def _has_peers(self) -> bool:
        """Whether there is another host."""
        return self._tiers.of_host < self.trainers

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        """As `ExchangePlanner.choose_homes`, of rows that one trainer holds; of the others it is the first holder."""
        has_one, fixed = self.rows.fixed_homes(batch.unique[fetched])
        others = fetched.copy()
        others[fetched] = ~has_one
        homes = np.empty(has_one.size, dtype=np.int32)
        homes[has_one], homes[~has_one] = fixed, super().choose_homes(batch, others)
        return homes

    def held_by(self, rows: NDArray[np.integer], homes: NDArray[np.integer], trainer: int) -> Held:
        """Hosted rows of the trainer's place on its host, rows whose home it is, and those that all hold."""
        several, _ = self.rows.fixed_homes(rows)
        place = trainer % self._tiers.of_host
        hosted = np.flatnonzero(self.rows.are_hosted(rows) & (homes == place))
        own = np.flatnonzero(~several & (homes == trainer))
        everywhere = np.flatnonzero(self.rows.are_everywhere(rows))
        return Held(np.concatenate((hosted, own, everywhere)), hosted.size if self._has_peers else 0)

    def are_alone(self, batch: UsedBatch) -> Bools:
        """Rows that no other trainer holds."""
        if not self._has_peers:
            return super().are_alone(batch)
        return ~self.rows.are_hosted(batch.unique)

    def are_shared(self, batch: UsedBatch) -> Bools:
        """Rows that all trainers hold."""
        return self.rows.are_everywhere(batch.unique)

    def hosted(self, now_rows: int, later_rows: int) -> Int32s:
        """What a plan says of hosted rows."""
        return Hosted(self._tiers.of_host, now_rows, later_rows).encode()
