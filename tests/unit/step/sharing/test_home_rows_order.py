"""When rows with homes are updated, sent, read and let go: each behind what other trainers have done to them."""

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.plan.exchange import Exchange, ExchangeCounts, Flow, Kind
from bagpipe_hpc.step.sharing.home_rows import HomeRows
from bagpipe_hpc.step.sharing.home_sums import HomeGradients, HomeTotal

WIDTH = 2
TRAINERS = 2
NOW, LATER, SOLO, SENT_NEXT, SENT_REST, NEXT, REST = range(7)
"""A slot of each for every batch: rows that are updated, those of which copies leave, and copies that come."""
NOBODY: Any = None
COMPUTE: Any = "the compute thread's"
MOVER: Any = "the mover's"
"""Chains of sums over hosts."""


def slot(batch: int, what: int) -> int:
    return 10 * batch + what


def slots(batch: int, *what: int) -> np.ndarray:
    return np.asarray([slot(batch, one) for one in what], np.int32)


def exchange_of(batch: int) -> Exchange:
    """Of the first trainer of two: one row of each kind to the other one, and one from it."""
    other, both = np.asarray([0, 1]), np.asarray([1, 1])
    counts = ExchangeCounts(
        *(1, 1, slot(batch, REST), slot(batch, NEXT), TRAINERS),
        *(other, both, other, both, other, other, other, other, np.empty((4, TRAINERS, 0), int)),
    )
    nowhere = np.zeros(2, np.int32)
    summed, sent = slots(batch, NOW, LATER), slots(batch, SENT_NEXT, SENT_REST)
    return Exchange(counts, nowhere, nowhere, summed, np.asarray([0, 0, 0, 0], np.int32), sent)


def plan_of(batch: int, groups: int = 1) -> Any:
    own = SimpleNamespace(exchanged=exchange_of(batch), private_slots=slots(batch, SOLO))
    return SimpleNamespace(batch=batch, is_closing=False, groups=[(None, own)] * groups)


GRADIENTS = torch.arange(10, dtype=torch.float32).view(5, WIDTH)
"""Of the five rows of a slice: copies now and later, lent now and later, and a solo one."""
COMES = 100.0
"""What comes of the other trainer, and is there when somebody has asked for it."""


class Marking(Cpu):
    """A device whose marks are what has happened before, and which notes whose work it follows."""

    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def mark(self) -> Any:
        return self._noted[-1]

    def follow(self, mark: Any, *tensors: Tensor) -> None:
        self._noted.append(f"behind {mark!r}: {[tensor[:, 0].tolist() for tensor in tensors]}")


class Job:
    """The first trainer of two; the test says when rows of the other one are here."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.begins_s = 0.0, 0.0
        self.arrivals: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
        updates: Any = SimpleNamespace(
            waiting=lambda *_: nullcontext(),
            travelled=self._travelled,
            apply=lambda *update: self._update("update", *update),
            apply_behind=lambda *update: self._update("update behind", *update),
        )
        cache: Any = SimpleNamespace(
            device=Marking(self.noted),
            width=WIDTH,
            copy_width=WIDTH,
            sum_gradients=self._sum,
            copies_of=self._copies_of,
        )
        cache.keep_copies = lambda slot, rows: self.noted.append(f"keep {rows[:, 0].tolist()} at {slot}")
        exchange: Any = SimpleNamespace(
            trainer=0,
            exchange=self._exchange,
            pass_on=lambda: self.noted.append("pass on"),
            free_spent=lambda: self.noted.append("free"),
            awaited=lambda: [["first hops"]],
        )
        self.rows = HomeRows(
            [cache, cache], updates, exchange, TRAINERS, None, Waits(30.0), (COMPUTE, MOVER), lambda: None
        )
        self.chains: list[Any] = []
        begin = self.rows._sums.begin

        def begin_sum(coming: HomeGradients, chain: Any) -> HomeTotal:
            self.chains.append(chain)
            return begin(coming, chain)

        setattr(self.rows._sums, "begin", begin_sum)  # noqa: B010

    def _travelled(self, what: str, since_s: float, rows: int) -> None:
        assert self.begins_s[0] <= since_s <= self.begins_s[1], "since the first group of tables began"
        self.noted.append(f"{rows} {what} travelled")

    def _update(self, what: str, _: int, rows: Tensor, gradients: Tensor, step: int) -> None:
        self.noted.append(f"{what} {rows.tolist()} by {gradients[:, 0].tolist()} of step {step}")

    def _sum(self, gradients: Tensor, places: Tensor, rows: int) -> Tensor:
        return torch.zeros(rows, WIDTH).index_add_(0, places, gradients)

    def _copies_of(self, rows: Tensor) -> np.ndarray:
        self.noted.append(f"copy {rows.tolist()}")
        return np.zeros((len(rows), WIDTH), np.float32)

    def _exchange(self, kind: Kind, sent: np.ndarray, flow: Flow, into: np.ndarray) -> Any:
        assert sent.shape == (flow.to.sum(), WIDTH)
        if kind in (Kind.NOW_GRADIENTS, Kind.LATER_GRADIENTS):
            self.noted.append(f"send {kind.name} {sent[:, 0].tolist()}")
        found = SimpleNamespace(rows=into, is_here=False, asked=0)

        def is_complete() -> bool:
            found.asked += 1
            if found.is_here:
                into[:] = COMES
            return bool(found.is_here)

        found.is_complete, found.awaited = is_complete, lambda: () if found.is_here else (kind,)
        self.arrivals[kind].append(found)
        return found

    def come(self, kind: Kind, which: int = -1) -> None:
        """Rows of the other trainer are here."""
        self.arrivals[kind][which].is_here = True

    def come_late(self, kind: Kind) -> None:
        """They are here when they have been asked for twice more."""
        (*_, last) = self.arrivals[kind]
        ask, asked = last.is_complete, last.asked

        def is_complete() -> bool:
            last.is_here = last.asked >= asked + 2
            return bool(ask())

        last.is_complete = is_complete

    def told(self) -> list[str]:
        """What has happened since this was asked last."""
        noted, self.noted = self.noted, []
        return noted

    def begin(self, batch: int, groups: int = 1) -> Any:
        """The compute thread's step up to its update."""
        ready: Any = SimpleNamespace(plan=plan_of(batch, groups))
        self.rows.start(ready)
        begin_s = time.perf_counter()
        self.rows.begin_update(ready, 0, GRADIENTS)
        self.begins_s = begin_s, time.perf_counter()
        return ready

    def advance(self, *noted: str, is_moving: bool, awaited: tuple[Kind, ...]) -> None:
        """A round of the mover, in which this happens; what is under way then, and behind what it goes on."""
        self.noted.clear()
        assert self.rows.advance() == is_moving
        assert self.noted == ["pass on", "free", *noted]
        assert self.rows.awaited() == [["first hops"], *([kind] for kind in awaited)]


@pytest.fixture
def job() -> Job:
    return Job()


SOLO_UPDATE = "update [2] by [8.0] of step 1"
NOW_UPDATE = ["1 now gradients travelled", "update [0] by [104.0] of step 1", "copy [3]"]
"""Of batch 0: gradients of both trainers, and then a copy leaves."""


def test_rows_are_updated_before_copies_leave_and_copies_are_here_before_they_are_read(job: Job) -> None:
    ready = job.begin(0)
    job.come_late(Kind.NOW_GRADIENTS)
    job.rows.update(ready, 1)
    assert job.told() == ["send NOW_GRADIENTS [0.0]", SOLO_UPDATE, *NOW_UPDATE]
    job.come_late(Kind.NEXT_COPIES)
    job.begin(1)
    assert job.told() == ["keep [100.0] at 5", "send NOW_GRADIENTS [0.0]"]


def test_an_early_update_waits_for_all_groups_and_is_the_only_one(job: Job) -> None:
    ready = job.begin(0, groups=2)
    job.come(Kind.NOW_GRADIENTS)
    job.rows.update_early(ready, 1)
    job.rows.begin_update(ready, 1, GRADIENTS)
    job.rows.update_early(ready, 1)
    assert job.told() == ["send NOW_GRADIENTS [0.0]"] * 2, "those of the second group are not here yet"
    job.come(Kind.NOW_GRADIENTS)
    job.rows.update_early(ready, 1)
    assert job.told() == [*[SOLO_UPDATE] * 2, "2 now gradients travelled", *NOW_UPDATE[1:] * 2]
    job.rows.update_early(ready, 1)
    job.rows.update(ready, 1)
    assert job.told() == []
    for group in range(2):
        job.come(Kind.NEXT_COPIES, group)
    ready = job.begin(1)
    job.come(Kind.NOW_GRADIENTS)
    job.told()
    job.rows.update_early(ready, 2)
    assert job.told()[1:3] == ["1 now gradients travelled", "update [10] by [104.0] of step 2"]


def test_copies_leave_behind_the_updates_that_they_are_to_have(job: Job) -> None:
    """The rest of those for a batch behind later gradients of the batch two before, which leave behind next copies."""
    rows = job.rows
    job.advance(is_moving=False, awaited=())
    for batch in range(3):
        rows.expect(plan_of(batch))
    job.advance("copy [4]", "copy [14]", is_moving=True, awaited=(Kind.REST_COPIES,))
    assert not rows.is_ready(plan_of(0))
    job.come(Kind.REST_COPIES, 0)
    job.advance("keep [100.0] at 6", is_moving=True, awaited=(Kind.REST_COPIES,))
    assert rows.is_ready(plan_of(0))
    assert not rows.is_ready(plan_of(1))
    job.come(Kind.REST_COPIES, 1)
    job.advance("keep [100.0] at 16", is_moving=False, awaited=())
    assert rows.is_ready(plan_of(1))
    assert not rows.is_ready(plan_of(2))

    ready = job.begin(0)
    job.advance(is_moving=True, awaited=(Kind.NOW_GRADIENTS,))
    job.come(Kind.NOW_GRADIENTS)
    rows.update(ready, 1)
    assert job.chains == [COMPUTE]
    job.advance(is_moving=True, awaited=(Kind.NEXT_COPIES,))
    job.come(Kind.NEXT_COPIES)
    followed = "behind 'copy [3]': [[2.0], [6.0]]"
    job.advance(followed, "send LATER_GRADIENTS [2.0]", is_moving=True, awaited=(Kind.LATER_GRADIENTS,))
    assert rows.may_retire(plan_of(0))
    assert not rows.may_retire(plan_of(1))
    job.come(Kind.LATER_GRADIENTS)
    updated = "update behind [1] by [106.0] of step 1"
    job.advance(updated, "copy [24]", is_moving=True, awaited=(Kind.REST_COPIES,))
    assert job.chains == [COMPUTE, MOVER]
    assert rows.may_retire(plan_of(1))
    assert not rows.may_retire(plan_of(2))
    assert not rows.is_ready(plan_of(2))
    job.come(Kind.REST_COPIES)
    job.advance("keep [100.0] at 26", is_moving=False, awaited=())
    assert rows.is_ready(plan_of(2))
    rows.restart()
    assert not rows.is_ready(plan_of(0))
    assert not rows.may_retire(plan_of(1))
    for batch in range(3):
        rows.expect(plan_of(batch))
    assert rows.advance()
    assert len(job.arrivals[Kind.REST_COPIES]) == 5, "of two batches of the new segment"


def test_a_batch_that_is_only_read_has_no_later_gradients(job: Job) -> None:
    for batch in range(4):
        job.rows.expect(plan_of(batch))
    ready: Any = SimpleNamespace(plan=plan_of(0))
    job.noted.append("evaluated")
    job.rows.only_read(ready)
    job.advance(
        "behind 'evaluated': []", "copy [4]", "copy [14]", "copy [24]", is_moving=True, awaited=(Kind.REST_COPIES,)
    )
    assert job.rows.may_retire(plan_of(1))


def test_the_last_copies_of_a_segment_are_waited_for_and_not_kept(job: Job) -> None:
    ready = job.begin(0)
    job.come(Kind.NOW_GRADIENTS)
    job.rows.update(ready, 1)
    job.come_late(Kind.NEXT_COPIES)
    job.rows.finish_delayed()
    assert job.arrivals[Kind.NEXT_COPIES][0].is_here
    job.told()
    job.begin(1)
    assert job.told() == ["send NOW_GRADIENTS [0.0]"]
    closing: Any = SimpleNamespace(batch=7, is_closing=True)
    assert job.rows.is_ready(closing)


def test_what_stays_is_rounded_as_what_travels() -> None:
    """A trainer that is alone is given nothing to round by (`open_row_sharing`)."""
    short = short_floats("bfloat16", 64)
    assert short is not None
    cache: Any = SimpleNamespace(device=Cpu())
    exchange: Any = SimpleNamespace(trainer=0)
    rows = HomeRows([cache], NOBODY, exchange, 2, short, Waits(30.0), (NOBODY, NOBODY), lambda: None)
    gradients = GRADIENTS / 3
    assert torch.equal(rows._sums.rounded(gradients), short.rounded(gradients))
    assert not torch.equal(short.rounded(gradients), gradients)
