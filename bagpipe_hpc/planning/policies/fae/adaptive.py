"""FAE's schedule R: adapts the share of an epoch's cold and hot samples in a turn to the test loss. Pure.

The share is halved when the test loss has risen after a turn's hot batches, and doubled when it fell four times in a
row (the Shuffle Scheduler of Adnan et al., PVLDB 15(1)). A turn ends at one of the evaluations within the epoch, so the
share does not move the evaluations.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.section_order import Section
from bagpipe_hpc.planning.policies.fae.order import COLD, HOT

_IMPROVEMENTS = 4
"""Improvements in a row after which the share is doubled."""


@dataclass(frozen=True)
class Share:
    """The share of a turn, and what it depends on.

    Attributes:
        percent: share of the batches of an epoch, 1 to 100.
        log_loss: test loss after the hot batches of the turn before; None before the first.
        improved: number of turns in a row after which the loss was smaller than after the turn before.
    """

    percent: int
    log_loss: float | None = None
    improved: int = 0

    def next(self, log_loss: float) -> "Share":
        """The share of the next turn, given the test loss after the hot batches of this one."""
        if self.log_loss is None:
            return replace(self, log_loss=log_loss)
        if log_loss > self.log_loss:
            return Share(max(1, self.percent // 2), log_loss)
        improved = self.improved + 1 if log_loss < self.log_loss else 0
        if improved == _IMPROVEMENTS:
            return Share(min(100, 2 * self.percent), log_loss)
        return Share(self.percent, log_loss, improved)


class Turn(NamedTuple):
    """Batches of an epoch: cold ones first, then hot ones.

    Attributes:
        first: number of the first batch.
        last: number of the last batch, and one.
        percent: the share.
    """

    first: int
    last: int
    percent: int


@dataclass(frozen=True)
class Epochs:
    """What the epochs of a run consist of.

    Attributes:
        cold: number of cold samples.
        hot: number of hot samples.
        batch_size: samples of a batch.
        evaluated_every: steps from one evaluation to the next, counted from the first step of the first epoch; 0: only
            the ends of epochs have evaluations.
    """

    cold: int
    hot: int
    batch_size: int
    evaluated_every: int

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-(self.cold + self.hot) // self.batch_size)

    def split(self, batch: int) -> tuple[int, int]:
        """How many of the first `batch` batches are cold, and how many hot: about the proportion of the whole epoch.

        Batches at the end of the epoch that mix both kinds do not count.
        """
        cold, hot = self.cold // self.batch_size, self.hot // self.batch_size
        batch = min(batch, cold + hot)
        of_cold = min(cold, batch - hot * batch // self.batches)
        return of_cold, batch - of_cold

    def turn_end(self, epoch: int, first: int, percent: int) -> int:
        """The end of a turn that begins with batch `first`: the first evaluation once its share is trained."""
        begin = epoch * self.batches
        wanted = first - (-self.batches * percent // 100)
        every = self.evaluated_every or self.batches
        due = -(-(begin + wanted) // every) * every - begin
        return min(self.batches, due)

    def turns(self, epoch: int, share: Share, heard: Iterable[Heard]) -> tuple[list[Turn], Share]:
        """The turns of an epoch, and the share after them; turns to come are laid out with the present share.

        Args:
            epoch: number of the epoch on these samples, from 0.
            share: the share of the first turn of the first epoch.
            heard: evaluations so far.
        """
        losses, found = {one.place: one.log_loss for one in heard}, []
        for number in range(epoch + 1):
            found = list(self._turns_of(number, share, losses))
            share = found[-1][1] if found else share
        return [turn for turn, _ in found], share

    def _turns_of(self, epoch: int, share: Share, losses: dict[tuple[int, int], float]) -> Iterator[tuple[Turn, Share]]:
        """Each turn of an epoch, and the share after it."""
        first = 0
        while first < self.batches:
            turn = Turn(first, self.turn_end(epoch, first, share.percent), share.percent)
            has_hot = self.split(turn.first)[1] < self.split(turn.last)[1]
            if has_hot and (log_loss := losses.get((epoch, turn.last))) is not None:
                share = share.next(log_loss)
            yield turn, share
            first = turn.last

    def sections(self, turns: Iterable[Turn]) -> list[Section]:
        """The sections of an epoch that are not empty, in order; what is left of both kinds comes at the end."""
        size, found = self.batch_size, []
        for turn in turns:
            (first_cold, first_hot), (last_cold, last_hot) = self.split(turn.first), self.split(turn.last)
            found += [
                Section(COLD, first_cold * size, last_cold * size),
                Section(HOT, first_hot * size, last_hot * size),
            ]
        found += [
            Section(COLD, self.cold // size * size, self.cold),
            Section(HOT, self.hot // size * size, self.hot),
        ]
        return [section for section in found if section.first < section.last]
