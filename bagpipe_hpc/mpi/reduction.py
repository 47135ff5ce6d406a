"""Sums gradients over the trainers, in the background of whatever the caller does meanwhile.

Those of rows go through MPI rather than Horovod, which takes longer for as many rows (`benchmarks/row_reduction.py`)
and keeps its core while it waits; those of dense weights may (`models/sums/mpi_sums.py`). Each trainer sums its share
of the rows, in the order of the trainers, then all gather the shares: the bytes of a good allreduce, and a result that
does not depend on MPI's choice of algorithm. `MPI_Iallreduce` itself is not used: in whole runs under Open MPI 5.0.11,
on busy cores, it returned wrong sums (docs/design-rows.md).

Many trainers may sum level by level (`plan/sum_levels.py`). Each group of the first level sums as above, but before the
shares are gathered, those who have the same share of several groups sum these on the next level. So a trainer sends to
the others of its groups alone, and no more bytes.

Over links they add up one half of many numbers while the other travels.

Both stages go by `MPI_Ialltoallv`, of which every message is under way at once. `MPI_Iallgatherv` would take the second
one round by round, each of which begins only when somebody tests it, and has a latency. When a sum may begin its next
stage is the subject of `pending_sum.py`.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.pending_sum import PendingSum, Stages, Wait
from bagpipe_hpc.mpi.requests import Awaited, SpentRequests
from bagpipe_hpc.mpi.start.hosts import spans_hosts
from bagpipe_hpc.mpi.waiting import nothing_to_watch
from bagpipe_hpc.plan.grid_hops import Layout
from bagpipe_hpc.plan.sum_levels import Levels, share_pieces
from bagpipe_hpc.plan.sum_shares import sum_shares


class SumComms(NamedTuple):
    """Communicators of the same ranks, on each of which sums start one stage, in one order.

    Attributes:
        adding: every rank gets its share of the others' numbers, and adds them.
        gathering: every rank gets the others' sums.
    """

    adding: MPI.Comm
    gathering: MPI.Comm

    @classmethod
    def split(cls, trainers: MPI.Comm, levels: Levels) -> list["SumComms"]:
        """Those of this trainer on each level. Collective over: `trainers`, in the order of their numbers."""
        own, apart, found = trainers.Get_rank(), 1, []
        for members in levels:
            place = own // apart % members
            group = own - place * apart  # its lowest member
            found.append(cls(trainers.Split(group, place), trainers.Split(group, place)))
            apart *= members
        return found


class Packing(Protocol):
    """How numbers travel in 16 bits; the same on every trainer."""

    def pack_array(self, values: NDArray[np.float32]) -> NDArray[np.int16]:
        """The bits of rounded numbers, of the same shape."""

    def unpack(self, packed: NDArray[np.int16], values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Write the numbers whose bits are given to `values`, of the same shape, and return these."""


class GradientReducer:
    """Starts sums over the trainers; every trainer starts the same sums in the same order, in one thread.

    Args:
        comm: the trainers' communicator, on which that thread alone starts operations.
        gathering: another one, for second stages, which may meet the first stage of a newer sum; they are started by
            whichever thread moves the sum on, one at a time.
        above: where `comm` and `gathering` are those of a group of trainers: those of this trainer's groups on the
            levels above, which add up what the groups below have come to, from the first to the last. Not with a
            `packing`. Collective over: all of them.
        timeout_s: longest wait for the other trainers; unless given, without a limit.
        watch: see `wait_until`.
        new_array: gives memory for a sum, float32 of a shape; NumPy's unless given.
        packing: how gradients and, from three trainers on, their sums travel; None for float32. A trainer takes its own
            part as the others do, rounded, so that all end with the same bits.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        gathering: MPI.Comm,
        timeout_s: float = math.inf,
        watch: Callable[[], None] = nothing_to_watch,
        new_array: Callable[[tuple[int, ...]], NDArray[np.float32]] | None = None,
        packing: Packing | None = None,
        above: Sequence[SumComms] = (),
    ) -> None:
        self._levels = (SumComms(comm, gathering), *above)
        self._over_links = [spans_hosts(level.adding) for level in self._levels] if above else [False]
        self.trainers: int = math.prod(level.adding.Get_size() for level in self._levels)
        self._newest: PendingSum | None = None
        self._spent = SpentRequests()
        self._lock = threading.Lock()
        self._timeout_s = timeout_s
        self._watch = watch
        self._new_array = new_array or _new_array
        self._packing = packing

    def start(self, gradients: NDArray[Any], into: NDArray[np.float32] | None = None) -> PendingSum:
        """Start summing gradients `[rows, D]`, of the same shape on every trainer; left alone until `wait`.

        Args:
            gradients: float32; with a `packing` they are packed already.
            into: takes the sum, float32 of the same shape; may be the gradients themselves, where several trainers add
                numbers that are not packed. Else new memory does.
        """
        if self.trainers == 1 or gradients.size == 0:
            stages, count = self._nothing_to_add(gradients), 0
        elif self.trainers == 2:
            stages, count = self._swap_and_add(gradients, into), 1
        else:
            stages, count = self._add_shares(self._levels, gradients, into), 2 * len(self._levels)
        with self._lock:
            self._newest = PendingSum(
                stages, count, self._newest, self._lock, self._timeout_s, self._watch, self._spent
            )
        return self._newest

    def advance(self) -> bool:
        """Move on what is under way, from another thread than the one that starts sums; whether anything is.

        A sum that is started early and needed late is complete by then only if somebody starts its second stage, and
        tests the first: MPI moves long messages on while it is called. Never waits for other trainers.
        """
        newest = self._newest
        if newest is not None and not newest.are_all_complete:
            newest.advance_far()
        self._spent.free()
        return newest is not None and not newest.are_all_complete

    def awaited(self) -> list[Awaited]:
        """What sums go on behind; for the thread that calls `advance`, until it does so again."""
        newest = self._newest
        if newest is None or newest.are_all_complete:
            return []
        with self._lock:
            return newest.awaited()

    def _swap_and_add(self, gradients: NDArray[Any], into: NDArray[np.float32] | None) -> Stages:
        """One stage: the fastest for two, who exchange no more than they would with shares."""
        adding, others = self._levels[0].adding, np.empty_like(gradients)
        in_order = (gradients, others) if adding.Get_rank() == 0 else (others, gradients)
        travels = Layout([0 if part is gradients else gradients.size for part in in_order], [0, 0])
        yield Wait(adding.Ialltoallv([gradients, *travels, self._kind], [others, *travels, self._kind]))
        parts = [self._unpacked(part, _new_array) for part in in_order]
        return add_in_order(parts, self._new_array(gradients.shape) if into is None else into)

    def _add_shares(
        self, levels: Sequence[SumComms], gradients: NDArray[Any], into: NDArray[np.float32] | None
    ) -> Stages:
        """Two stages a level: send each trainer its share of the rows; behind the next level gather the summed shares.

        Args:
            levels: that are left, one at least.
            gradients: as for `start`, as is `into`.
            into: as there; the total of this level.
        """
        (adding, gathering), inner = levels[0], levels[1:]
        trainers, rank = adding.Get_size(), adding.Get_rank()
        rows, width = gradients.shape
        over_links = self._over_links[-len(levels)]  # within a host a core copies, which could add up meanwhile
        pieces = share_pieces(len(levels), gradients.nbytes) if over_links else 1
        shares = sum_shares(rows, width, trainers, rank, pieces)
        kind = self._kind
        share: NDArray[Any] = np.empty((shares.pieces[-1].rows.stop, width), dtype=np.float32)
        taken, requests = [], []
        for piece in shares.pieces:
            taken.append(np.empty((trainers, *share[piece.rows].shape), dtype=gradients.dtype))
            requests.append(adding.Ialltoallv([gradients, *piece.sent, kind], [taken[-1], *piece.taken, kind]))
        for number, (piece, parts, request) in enumerate(zip(shares.pieces, taken, requests, strict=True), 1):
            yield Wait(request, ends_stage=number == pieces)
            add_in_order(self._unpacked(parts, _new_array), share[piece.rows])
        if inner:
            share = yield from self._add_shares(inner, share, share)
        if self._packing is None:
            total = self._new_array(gradients.shape) if into is None else into
        else:
            share, total = self._packing.pack_array(share), np.empty_like(gradients)
        total.reshape(-1)[shares.own] = share.reshape(-1)
        yield Wait(gathering.Ialltoallv([share, *shares.sums_sent, kind], [total, *shares.sums_taken, kind]))
        return self._unpacked(total, self._new_array)

    @property
    def _kind(self) -> MPI.Datatype:
        """Of what travels."""
        return MPI.FLOAT if self._packing is None else MPI.INT16_T

    def _nothing_to_add(self, gradients: NDArray[Any]) -> Stages:
        """A sum that is complete as it is."""
        yield from ()
        return self._unpacked(gradients, self._new_array)

    def _unpacked(
        self, numbers: NDArray[Any], new_array: Callable[[tuple[int, ...]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """What has travelled as float32 numbers; it is that already where nothing was packed."""
        return numbers if self._packing is None else self._packing.unpack(numbers, new_array(numbers.shape))


def _new_array(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.empty(shape, dtype=np.float32)


def add_in_order(
    parts: NDArray[np.float32] | Sequence[NDArray[np.float32]], total: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Add two or more `parts[0]`, `parts[1]`, ... from left to right, float32 `[parts, ...]`, to `total [...]`.

    The total may be `parts[0]` or `parts[1]`.
    """
    total = np.add(parts[0], parts[1], out=total)
    for part in parts[2:]:
        total += part
    return total
