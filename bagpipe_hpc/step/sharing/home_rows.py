"""Rows with one home each: gradients go home, copies come back (`cache.sharing=home`).

The rules are in `planning/lookahead/home_rules.py`; plans name every slot that is sent, summed or filled. In step x:

  compute thread   in the backward pass, as soon as the gradients of embeddings are complete, exchange now gradients;
                   behind it, or between gradients of weights that come last (`train.weight_gradients=late`), update
                   solo rows; sum and update what came; exchange next copies for x + 1; wait for them when the model
                   asks for the embeddings of x + 1
  mover            once next copies for x + 1 are here, exchange later gradients; sum and update later(x), behind x + 1;
                   then exchange the rest of the copies for x + 2; meanwhile move on what the compute thread has begun

Nothing but now gradients and next copies is on the critical path: later gradients leave the link to them. The layers
that need no embeddings, such as DLRM's bottom MLP, run while these travel: backward while gradients do, and forward
while copies do.

Each exchange is collective over the trainers, so all of them must have those of one kind in the same order:

* Every trainer gets every plan, in one order, and computes its batch, also with a slice of no samples. It has one
  exchange of now gradients, and then one of next copies, for each batch that is trained, group after group.
* When in a batch a trainer begins an exchange is its own affair: in the backward pass, or behind it, where a gradient
  comes last or not at all (a loss may leave embeddings out), or on a GPU. Groups begin in their order in either case
  (`RowGradients`), of several micro-batches with the last, and never where the loss is not finite: such a step ends the
  run before anything of it has left.
* The compute thread hands batches to the mover in that order, and in it the mover exchanges later gradients. It
  exchanges the rest of the copies in the order of `expect`, for every batch that is fetched, also of an evaluation.
* Evaluations have no gradients and no next copies: no trainer exchanges any (`only_read`).
* A closing plan is neither computed nor expected, wherever the oracle ends a segment: all trainers get the same one.
* The last batch of a segment exchanges next copies as well, of no rows: `finish_delayed` sees to their end. Later
  gradients are applied before the closing plan may retire, and the rest of the copies came before their batch was
  handed over. So all exchanges of a segment have ended before `restart`, and before communicators are freed.

Sums of rows that are held once a host go on from host to host (`step/sharing/home_sums.py`): now ones in the compute
thread, before next copies, later ones in the mover, each in the order of the batches. Of a batch the holder on a host
waits for those on other hosts, who wait for gradients of this batch and for what belongs to earlier batches alone.

Nobody waits for ever, even if an exchange ended only when all trainers have begun it. A trainer begins the four of
batch x, in the order rest, now, next, later, behind exchanges of earlier batches and earlier kinds alone: the rest of
the copies waits for later(x - 2) and for rows that were written back behind earlier batches.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.kernels.rows.short_floats import ShortFloats
from bagpipe_hpc.mpi.requests import Awaited
from bagpipe_hpc.mpi.rows.exchange import Arrival, RowExchange, awaited_together
from bagpipe_hpc.mpi.rows.host_chain import HostChain
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.plan.batch_plan import ReceivedPlan
from bagpipe_hpc.plan.exchange import Kind, Summed
from bagpipe_hpc.step.ready_batch import ReadyBatch
from bagpipe_hpc.step.sharing.contract import RowUpdates
from bagpipe_hpc.step.sharing.home_batches import (
    BegunGroup,
    ComputedBatch,
    GroupExchange,
    LaterGradients,
    RestOfCopies,
    SliceSums,
    are_complete,
    exchanges_of,
)
from bagpipe_hpc.step.sharing.home_sums import HomeGradients, HomeSums, HomeTotal


class HomeRows:
    """The `RowSharing` of rows that live at one trainer each.

    Args:
        caches: rows on the device, of each group of tables.
        updates: applies what is summed.
        exchange: to and from the other trainers.
        trainers: number of trainers T.
        short: how gradients travel; None for float32.
        waits: how the compute thread waits for other trainers.
        chains: sum over hosts, where rows are held once a host: the compute thread's, for now, and the mover's.
        ring: tells the mover that it has something to move on.
    """

    def __init__(
        self,
        caches: Sequence[RowCache],
        updates: RowUpdates,
        exchange: RowExchange,
        trainers: int,
        short: ShortFloats | None,
        waits: Waits,
        chains: tuple[HostChain, HostChain],
        ring: Callable[[], None],
    ) -> None:
        self._caches = caches
        self._device = caches[0].device
        self._updates = updates
        self._exchange = exchange
        self._short = short
        self._sums = HomeSums(caches, exchange.trainer, trainers, short)
        self._waits = waits
        self._chains = chains
        self._ring = ring
        # The compute thread's.
        self._groups: list[GroupExchange] = []
        self._begun: list[BegunGroup] = []
        self._begun_s = 0.0
        self._totals: list[HomeTotal] = []
        self._has_updated_now = False
        self._next: list[tuple[int, Arrival]] = []
        # From the compute thread to the mover; what the former waits for, the latter moves on before.
        self._awaited: tuple[Arrival, ...] = ()
        self._computed: queue.SimpleQueue[ComputedBatch] = queue.SimpleQueue()
        # The mover's; numbers of batches in the segment.
        self._given: deque[ComputedBatch] = deque()
        self._late: deque[LaterGradients] = deque()
        self._rest: deque[RestOfCopies] = deque()
        self._applied = self._complete = -1

    # The compute thread.

    def start(self, batch: ReadyBatch) -> None:
        """Take in the copies of what the batch before has updated, and get ready for what comes after this one."""
        self._take_next(batch.plan)
        self._groups = exchanges_of(batch.plan)

    def _take_next(self, plan: ReceivedPlan) -> None:
        coming, self._next = self._next, []
        rows = sum(len(arrival.rows) for _, arrival in coming)
        with self._updates.waiting("copies of rows", rows):
            self._wait([arrival for _, arrival in coming], f"copies of the rows that batch {plan.batch} needs")
        self._awaited = ()
        for cache, (slot, arrival) in zip(self._caches, coming, strict=False):
            cache.keep_copies(slot, arrival.rows)

    def advance_delayed(self) -> None:
        """Nothing: the mover moves on what is delayed."""

    def begin_update(self, batch: ReadyBatch, group: int, sums: Tensor) -> None:  # noqa: ARG002
        """Start to exchange now(x) of a group of tables."""
        own = self._groups[group]
        part = SliceSums.of(own, sums)
        if not self._begun:
            self._begun_s = time.perf_counter()
        now = self._exchange_gradients(Kind.NOW_GRADIENTS, own, own.rows.now, part.now, part.lent_now)
        self._begun.append(BegunGroup(own, part, now))
        self._awaited = (*self._awaited, now.arrival)
        self._ring()

    def update_early(self, batch: ReadyBatch, step: int) -> None:  # noqa: ARG002
        """Update solo rows and now(x) and exchange copies, if all gradients have come that this takes."""
        has_begun = len(self._begun) == len(self._groups)
        if has_begun and not self._has_updated_now and self._is_now_summed():
            self._update_solo(step)
            self._update_now(step)
            self._ring()

    def update(self, batch: ReadyBatch, step: int) -> None:
        """Update solo rows and now(x) and exchange copies, unless that was early; hand later(x) to the mover."""
        if not self._has_updated_now:
            self._update_solo(step)
            with self._updates.waiting("gradients of rows", self._now_rows()):
                what = f"gradients of the rows that batch {batch.plan.batch + 1} needs"
                self._waits.until(self._is_now_summed, what)
            self._update_now(step)
        begun, self._begun, self._has_updated_now = self._begun, [], False
        later = [(own, part) for own, part, _ in begun]
        self._give(ComputedBatch(batch.plan, step, later, self._device.mark(), self._awaited))

    def _is_now_summed(self) -> bool:
        """Whether now(x) is; sums over hosts begin as soon as all gradients are here."""
        if not self._totals:
            if not are_complete([now.arrival for _, _, now in self._begun]):
                return False
            self._totals = [self._sums.begin(now, self._chains[0]) for _, _, now in self._begun]
        return are_complete(self._totals)

    def _update_now(self, step: int) -> None:
        """Update now(x), which is summed, and let copies leave: of solo rows, too, which are updated by now.

        Whoever calls it rings for the mover, when there is nothing more to give it.
        """
        totals, self._totals = self._totals, []
        self._updates.travelled("now gradients", self._begun_s, self._now_rows())
        for (own, _, _), total in zip(self._begun, totals, strict=True):
            self._updates.apply(own.group, total.slots, self._sums.of(total), step)
            copies = self._exchange_copies(Kind.NEXT_COPIES, own, own.rows.next_sent)
            self._next.append((own.counts.next_slot, copies))
        self._awaited = tuple(copies for _, copies in self._next)
        self._has_updated_now = True

    def _update_solo(self, step: int) -> None:
        """Update the rows that this trainer alone has used; the next batch may need copies of them elsewhere."""
        for own, part, _ in self._begun:
            self._updates.apply(own.group, self._device.to_device(own.solo), self._sums.rounded(part.solo), step)

    def _now_rows(self) -> int:
        return sum(now.summed.slots.size for _, _, now in self._begun)

    def finish_delayed(self) -> None:
        """End the last exchange of next copies; the mover applies what is late before rows leave (`may_retire`)."""
        coming, self._next = self._next, []
        self._wait([arrival for _, arrival in coming], "the other trainers to end the exchange of copies")
        self._awaited = ()

    def only_read(self, batch: ReadyBatch) -> None:
        """Note that the copies of a batch may be overwritten."""
        self._give(ComputedBatch(batch.plan, 0, [], self._device.mark()))

    def _give(self, computed: ComputedBatch) -> None:
        """Hand a batch to the mover."""
        self._computed.put(computed)
        self._ring()

    # The mover.

    def expect(self, plan: ReceivedPlan) -> None:
        """Learn that the rows of a batch are in this cache, so that copies of them may be sent."""
        self._rest.append(RestOfCopies(plan.batch, exchanges_of(plan)))

    def advance(self) -> bool:
        """Exchange and apply what is late, exchange the rest of the copies for the next batches; move all rows on."""
        self._exchange.pass_on()
        self._exchange.free_spent()
        awaited = sum(not arrival.is_complete() for arrival in self._awaited)
        while not self._computed.empty():
            self._given.append(self._computed.get())
        while self._given and are_complete(self._given[0].copies):
            self._late.append(self._exchange_later(self._given.popleft()))
        while self._late and self._is_summed(self._late[0]):
            self._apply(self._late.popleft())
        for rest in self._rest:
            if rest.arrivals:
                continue
            if self._applied < rest.batch - 2:
                break
            rest.arrivals = [self._exchange_copies(Kind.REST_COPIES, own, own.rows.rest_sent) for own in rest.groups]
        while self._rest and self._rest[0].has_come():
            self._keep_rest(self._rest.popleft())
        is_receiving = bool(self._rest and self._rest[0].arrivals)
        return bool(awaited or self._given or self._late) or is_receiving

    def awaited(self) -> list[Awaited]:
        """What comes first of each kind, and what the compute thread waits for, so that it is moved on."""
        late = self._late[0].awaited() if self._late else []
        rest = awaited_together(self._rest[0].arrivals) if self._rest else []
        return [*self._exchange.awaited(), *late, *rest, *awaited_together(self._awaited)]

    def is_ready(self, plan: ReceivedPlan) -> bool:
        """Whether all copies are here but those of what the batch before updates, and this home's rows up to date.

        The rest of the copies is exchanged only when later(x - 2) is applied, so who has them has that, too.
        """
        return plan.is_closing or self._complete >= plan.batch

    def may_retire(self, plan: ReceivedPlan) -> bool:
        """Whether later(x - 1) is in the rows that leave after x."""
        return self._applied >= plan.batch - 1

    def restart(self) -> None:
        """Count batches from 0 again."""
        self._applied = self._complete = -1

    def _exchange_later(self, computed: ComputedBatch) -> LaterGradients:
        tensors = [tensor for _, part in computed.parts for tensor in (part.later, part.lent_later)]
        self._device.follow(computed.mark, *tensors)
        sums = [
            self._exchange_gradients(Kind.LATER_GRADIENTS, own, own.rows.later, part.later, part.lent_later)
            for own, part in computed.parts
        ]
        return LaterGradients(computed.plan.batch, computed.step, sums)

    def _is_summed(self, late: LaterGradients) -> bool:
        """Whether later(x) is; sums over hosts begin as soon as all gradients are here."""
        if not late.totals:
            if not all(of_group.arrival.is_complete() for of_group in late.sums):
                return False
            self._begin_totals(late)
        return are_complete(late.totals)

    def _begin_totals(self, late: LaterGradients) -> None:
        late.totals = [self._sums.begin(of_group, self._chains[1]) for of_group in late.sums]

    def _apply(self, late: LaterGradients) -> None:
        for total in late.totals:
            self._updates.apply_behind(total.group, total.slots, self._sums.of(total), late.step)
        self._applied = late.batch

    def _keep_rest(self, rest: RestOfCopies) -> None:
        for own, arrival in zip(rest.groups, rest.arrivals, strict=True):
            self._caches[own.group].keep_copies(own.counts.rest_slot, arrival.rows)
        self._complete = rest.batch

    # Both, each for rows of its own.

    def _exchange_gradients(
        self, kind: Kind, own: GroupExchange, summed: Summed, sent: Tensor, kept: Tensor
    ) -> HomeGradients:
        """Start to exchange gradients: those sent are of others' rows, those kept of this home's."""
        flow = own.counts.flow(kind)
        packed = self._device.to_host(sent if self._short is None else self._short.pack(sent))
        shape = int(flow.source.sum()), self._caches[own.group].width
        rows: NDArray[Any] = self._device.new_array(shape) if self._short is None else np.empty(shape, dtype=np.int16)
        arrival = self._exchange.exchange(kind, packed, flow, rows)
        return HomeGradients(own.group, summed, own.rows.hosted.of_host, self._sums.rounded(kept), arrival)

    def _exchange_copies(self, kind: Kind, own: GroupExchange, slots: NDArray[np.int32]) -> Arrival:
        """Start to exchange copies: those of `slots` are sent."""
        flow, cache = own.counts.flow(kind), self._caches[own.group]
        copies = cache.copies_of(self._device.to_device(slots))
        rows = self._device.new_array((int(flow.source.sum()), cache.copy_width))
        return self._exchange.exchange(kind, copies, flow, rows)

    def _wait(self, arrivals: Sequence[Arrival], what: str) -> None:
        self._waits.until(lambda: are_complete(arrivals), what)
