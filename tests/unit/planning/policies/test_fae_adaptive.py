"""FAE's share adapts to the test loss: by the rule, behind hot batches, and never to samples that are trained."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.sample_order import SampleOrder, require_each_once
from bagpipe_hpc.plan.section_order import Section
from bagpipe_hpc.planning.capacity import measure_need
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.policies.fae.adaptive import Epochs, Share, Turn
from bagpipe_hpc.planning.policies.fae.order import COLD, HOT, sections
from bagpipe_hpc.planning.policies.fae.planner import WINDOW
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policies.slipstream.settings import SlipstreamSettings
from bagpipe_hpc.planning.segment_planner import plan_segment
from tests.unit.planning.policies.hot_samples import BLOCK_ROWS, drawn_samples, policy_of, samples_in_order


def shares(first: int, losses: list[float]) -> list[int]:
    """The share behind each of these test losses."""
    share, found = Share(first), []
    for loss in losses:
        share = share.next(loss)
        found.append(share.percent)
    return found


@pytest.mark.parametrize(
    ("first", "losses", "expected"),
    [
        (50, [5, 6], [50, 25]),  # it rises
        (50, [5, 4, 3, 2, 1], [50, 50, 50, 50, 100]),  # four in a row
        (50, [6, 5, 4, 3, 3, 2, 1, 0, -1], [50, 50, 50, 50, 50, 50, 50, 50, 100]),  # one that stays is none in a row
        (20, [9, 8, 7, 8, 7, 6, 5, 4], [20, 20, 20, 10, 10, 10, 10, 20]),  # anew behind one that rises
        (20, [9, 8, 7, 6, 5, 4, 3, 2, 1], [20, 20, 20, 20, 40, 40, 40, 40, 80]),  # anew behind four
        (3, [1, 2, 3, 4], [3, 1, 1, 1]),  # no less than 1
        (60, [9, 8, 7, 6, 5], [60, 60, 60, 60, 100]),  # no more than 100
    ],
)
def test_the_rule_by_hand(first: int, losses: list[float], expected: list[int]) -> None:
    assert shares(first, losses) == expected


@dataclass(frozen=True)
class Run:
    """A run whose test losses are drawn.

    Attributes:
        epochs: of the run.
        share: the first one.
        losses: behind each evaluation, by epoch and batches.
    """

    epochs: Epochs
    share: int
    losses: dict[tuple[int, int], float]

    def evaluations(self, epoch: int) -> list[int]:
        """Behind how many batches of an epoch there is one."""
        batches, every = self.epochs.batches, self.epochs.evaluated_every
        return [one for one in range(1, batches + 1) if one == batches or (epoch * batches + one) % every == 0]

    def heard(self, epoch: int, batch: int) -> list[Heard]:
        """Those up to a batch of an epoch."""
        return [Heard(*place, loss) for place, loss in sorted(self.losses.items()) if place <= (epoch, batch)]

    def sections(self, epoch: int, batch: int) -> tuple[list[Section], list[Turn]]:
        """What is laid out when these have been heard."""
        turns, _ = self.epochs.turns(epoch, Share(self.share), self.heard(epoch, batch))
        return self.epochs.sections(turns), turns


@st.composite
def runs(draw: st.DrawFn, epochs: type[Epochs] = Epochs) -> Run:
    cold, hot = draw(st.tuples(st.integers(0, 120), st.integers(0, 120)).filter(any))
    of = epochs(cold, hot, draw(st.integers(2, 12)), draw(st.integers(1, 12)))
    run = Run(of, draw(st.integers(1, 100)), {})
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    places = [(epoch, batch) for epoch in range(2) for batch in run.evaluations(epoch)]
    run.losses.update({place: float(rng.integers(0, 6)) for place in places})
    return run


def order_of(sections: list[Section]) -> np.ndarray:
    """Kind and position of each sample, in order, int64 `[n, 2]`."""
    parts = [(np.full(one.last - one.first, one.kind), np.arange(one.first, one.last)) for one in sections]
    return np.concatenate([np.empty((0, 2), np.int64), *(np.stack(part, axis=1) for part in parts)])


def require_rules(run: Run) -> None:
    """See that each epoch is laid out as it should, behind each of its evaluations.

    Raises:
        AssertionError: it is not.
    """
    size, before = run.epochs.batch_size, None
    for epoch in range(2):
        points = run.evaluations(epoch)
        for heard_at in (0, *points):
            found, turns = run.sections(epoch, heard_at)
            order = order_of(found)
            for kind, count in ((COLD, run.epochs.cold), (HOT, run.epochs.hot)):
                assert order[order[:, 0] == kind][:, 1].tolist() == list(range(count)), "each sample once, in its order"
            batches = [set(order[first : first + size, 0].tolist()) for first in range(0, len(order), size)]
            assert sum(len(kinds) > 1 for kinds in batches) <= 1, "batches are cold or hot, but for one"
            if heard_at:
                assert before is not None
                assert np.array_equal(order[: heard_at * size], before[: heard_at * size]), "what is trained stays"
            before = order
        require_turns(run, epoch, turns, batches)


def require_turns(run: Run, epoch: int, turns: list[Turn], batches: list[set[int]]) -> None:
    """See that the turns of an epoch, all of which is trained, have the shares that the losses say.

    Raises:
        AssertionError: they do not.
    """
    points, (share, last_loss, improved) = run.evaluations(epoch), run_rule(run, epoch)
    assert [turn.first for turn in turns] == [0, *(turn.last for turn in turns[:-1])]
    assert turns[-1].last == run.epochs.batches
    for turn in turns:
        assert turn.last in points, "it ends at an evaluation"
        wanted = min(run.epochs.batches, turn.first + max(1, -(-run.epochs.batches * turn.percent // 100)))
        assert turn.last >= wanted, "it has its share"
        assert not [one for one in points if wanted <= one < turn.last], "and ends at the first evaluation then"
        assert turn.percent == share
        kinds = batches[turn.first : turn.last]
        hot = [number for number, kind in enumerate(kinds) if kind == {HOT}]
        if turn.last < run.epochs.batches - 2:  # what is left of both kinds lies behind
            assert hot == list(range(len(kinds) - len(hot), len(kinds))), "hot ones end it"
        if hot:
            share, last_loss, improved = next_share(share, last_loss, improved, run.losses[epoch, turn.last])


def run_rule(run: Run, epoch: int) -> tuple[int, float | None, int]:
    """The share that an epoch begins with, by the rule in plain words."""
    state: tuple[int, float | None, int] = (run.share, None, 0)
    for earlier in range(epoch):
        _, turns = run.sections(earlier, run.epochs.batches)
        for turn in turns:
            if run.epochs.split(turn.first)[1] < run.epochs.split(turn.last)[1]:
                state = next_share(*state, run.losses[earlier, turn.last])
    return state


def next_share(share: int, last: float | None, improved: int, loss: float) -> tuple[int, float, int]:
    if last is None or loss == last:
        return share, loss, 0
    if loss > last:
        return max(1, share // 2), loss, 0
    return (min(100, share * 2), loss, 0) if improved == 3 else (share, loss, improved + 1)


@given(runs())
def test_turns_are_laid_out_anew_behind_evaluations(run: Run) -> None:
    require_rules(run)


class LaysTheTurnOutAnew(Epochs):
    """A turn that has begun has the newest share, too."""

    def _turns_of(self, epoch: int, share: Share, losses: dict[tuple[int, int], float]) -> Iterator[tuple[Turn, Share]]:
        newest = Share(share.percent)
        for loss in losses.values():
            newest = newest.next(loss)
        return super()._turns_of(epoch, newest, {})


class GoesByAnyEvaluation(Epochs):
    """Evaluations within a turn count, too."""

    def _turns_of(self, epoch: int, share: Share, losses: dict[tuple[int, int], float]) -> Iterator[tuple[Turn, Share]]:
        first = 0
        while first < self.batches:
            turn = Turn(first, self.turn_end(epoch, first, share.percent), share.percent)
            for batch in range(turn.first + 1, turn.last + 1):
                if (loss := losses.get((epoch, batch))) is not None:
                    share = share.next(loss)
            yield turn, share
            first = turn.last


class EndsWithinAnInterval(Epochs):
    """A turn ends with its share, evaluated or not."""

    def turn_end(self, epoch: int, first: int, percent: int) -> int:  # noqa: ARG002
        return min(self.batches, first + max(1, -(-self.batches * percent // 100)))


class ForgetsEpochs(Epochs):
    """Each epoch begins with the first share."""

    def turns(self, epoch, share, heard):  # type: ignore[no-untyped-def]
        found = list(self._turns_of(epoch, share, {one.place: one.log_loss for one in heard}))
        return [turn for turn, _ in found], found[-1][1]


class HotFirst(Epochs):
    """Hot batches come before cold ones, so that none is evaluated behind them."""

    def sections(self, turns):  # type: ignore[no-untyped-def]
        found = super().sections(turns)
        for number, (one, other) in enumerate(pairwise(found)):
            if (one.kind, other.kind) == (COLD, HOT):
                found[number : number + 2] = [other, one]
        return found


SEEDED = [
    Run(Epochs(100, 100, 5, 3), 10, {}),
    Run(Epochs(60, 140, 5, 2), 20, {}),
    Run(Epochs(50, 50, 10, 10), 100, {}),
]
"""Runs that each broken rule shows in, at least one of them; their losses are drawn."""


@pytest.mark.parametrize(
    "kind", [LaysTheTurnOutAnew, GoesByAnyEvaluation, EndsWithinAnInterval, ForgetsEpochs, HotFirst]
)
def test_a_broken_schedule_is_noticed(kind: Callable[..., Epochs]) -> None:
    def check(of: Callable[..., Epochs]) -> None:
        rng = np.random.default_rng(11)
        for one in SEEDED:
            run = replace(one, epochs=of(**vars(one.epochs)), losses={})
            places = [(epoch, batch) for epoch in range(2) for batch in run.evaluations(epoch)]
            run.losses.update({place: float(rng.integers(0, 6)) for place in places})
            require_rules(run)

    check(Epochs)
    with pytest.raises(AssertionError):
        check(kind)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 12), st.integers(0, 50))
def test_a_share_of_all_is_that_of_a_fixed_order(cold: int, hot: int, batch_size: int, every: int) -> None:
    epochs = Epochs(cold, hot, batch_size, every)
    turns, _ = epochs.turns(0, Share(100), [])
    assert epochs.sections(turns) == sections(cold, hot, batch_size, 100)


def epochs_orders(tmp_path: Path, heard: list[Heard], *, share: int = 20) -> tuple[list[Bags], np.ndarray]:
    """The batches of the first epoch of some samples, and their numbers in order."""
    samples = drawn_samples(3, 200)
    policy = policy_of(tmp_path, samples, 20, batch_size=8, share_percent=share, evaluated_every=2)
    training = policy.facts.training
    assert training is not None
    default = SampleOrder(samples.samples, BLOCK_ROWS, 1, 0)
    order = policy.order(policy.settings, default, replace(training, heard=tuple(heard)))
    require_each_once(order)
    numbers = samples_in_order(order)
    return [samples.take(numbers[first : first + 8]) for first in range(0, numbers.size, 8)], numbers


def test_the_policy_orders_by_what_it_has_heard(tmp_path: Path) -> None:
    _, alone = epochs_orders(tmp_path, [])
    rising = [Heard(0, 6, 0.5), Heard(0, 12, 0.6)]
    _, first = epochs_orders(tmp_path, rising[:1])
    _, halved = epochs_orders(tmp_path, rising)
    np.testing.assert_array_equal(alone, first)
    np.testing.assert_array_equal(alone[: 12 * 8], halved[: 12 * 8])
    assert not np.array_equal(alone, halved)


def test_what_is_decided_is_said(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, drawn_samples(3, 200), 20, batch_size=8, share_percent=20, evaluated_every=2)
    training = policy.facts.training
    assert training is not None
    heard = [Heard(0, 2, 0.7), Heard(0, 6, 0.5), Heard(0, 8, 0.4), Heard(0, 12, 0.6), Heard(1, 3, 0.7)]
    said = [
        policy.decision(policy.settings, replace(training, heard=tuple(heard[: number + 1])))
        for number in range(len(heard))
    ]
    within = ""  # a turn of 6 batches ends behind batches 6 and 12
    assert said == [
        within,
        "test loss 0.500000, share 20 % -> 20 %",
        within,
        "test loss 0.600000, share 20 % -> 10 %",
        "test loss 0.700000, share 10 % -> 5 %",  # the first turn of the next epoch
    ]


def test_the_cache_has_room_for_any_blocks(tmp_path: Path) -> None:
    """Measured in the order of a small share, it takes that of a large one, whose blocks have more rows."""
    small, _ = epochs_orders(tmp_path, [], share=1)
    large, _ = epochs_orders(tmp_path, [], share=100)
    policy = policy_of(tmp_path, drawn_samples(3, 200), 20, batch_size=8, share_percent=1, evaluated_every=2)

    def planner(window: object) -> object:  # noqa: ARG001
        return policy.planner(WINDOW)

    need = measure_need(planner, WINDOW, lambda: iter([small]))  # type: ignore[arg-type]
    assert len(list(plan_segment(policy.planner(WINDOW, need.shared_rows, need.private_rows), large))) > len(large)
    assert need.shared_rows == 20
    limited = policy.planner(WINDOW, need.shared_rows, need.private_rows)
    assert len(list(plan_segment(limited, small))) > len(small)
    assert limited.size().shared_slots < 20, "what it used, once its slots are given"
    fixed = policy_of(tmp_path, drawn_samples(3, 200), 20, batch_size=8, share_percent=1)
    assert measure_need(lambda _: fixed.planner(WINDOW), WINDOW, lambda: iter([small])).shared_rows < 20
    check_policy(policy, large)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(SettingError, match=r"replay = 'run': a run decides nothing with adapt_share = false"):
        FaeSettings(replay="run")
    FaeSettings(replay="run", adapt_share=True)
    SlipstreamSettings(replay="run")
    with pytest.raises(SettingError, match=r"adapt_share = True: use false: snapshots are taken at batches"):
        SlipstreamSettings(adapt_share=True)
