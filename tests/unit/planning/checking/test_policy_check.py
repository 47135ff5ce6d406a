"""Plans and orders that break a rule are noticed, those that keep all are not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.planning.batch_rows import LoadedBatch, RetiredByGroup, RetiredRows, RowChoice
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.homes.slots import Placed, UsedBatch
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Assignment, Policy, RunFacts, TrainingRows
from bagpipe_hpc.planning.rule_planner import RulePlanner
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.unit.planning.policy_batches import batches, facts


class Choosing(Policy):
    """A policy whose rule is a function."""

    def __init__(self, run: RunFacts, choose: Callable[[LoadedBatch], RowChoice], window: Window) -> None:
        super().__init__(NoSettings(), run)
        self._choose, self._window = choose, window

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        return self._window

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
        choose_rows = self._choose

        class ByFunction(RulePlanner):
            def choose(self, number: int, batch: LoadedBatch, following: LoadedBatch | None) -> RowChoice:  # noqa: ARG002
                return choose_rows(batch)

        return ByFunction(self.facts.total_rows, self.facts.trainers, window, shared, private)


def choice(batch: LoadedBatch, *, dead: bool, private: bool, now: bool) -> RowChoice:
    """The same for every row, but private only where it has a single user."""
    all_rows = np.ones(batch.unique.size, dtype=np.bool_)
    return RowChoice(dead & all_rows, private & (batch.user >= 0), now & all_rows)


SOUND = {
    "held by all": {"dead": True, "private": False, "now": True},
    "alone where possible": {"dead": True, "private": True, "now": True},
}
BROKEN = {
    "summed too late": (Window(1, 1), {"dead": True, "private": False, "now": False}, "still holds|end otherwise"),
    "fetched too early": (Window(3, 1), {"dead": True, "private": False, "now": True}, "still holds|end otherwise"),
    "private and kept": (Window(5, 1), {"dead": False, "private": True, "now": True}, "only dead rows may be private"),
}


@pytest.mark.parametrize("name", SOUND)
def test_rules_of_one_s_own(name: str) -> None:
    values = SOUND[name]
    check_policy(Choosing(facts(3), lambda batch: choice(batch, **values), Window(1, 1)), batches(5))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_are_noticed(name: str) -> None:
    window, values, what = BROKEN[name]
    with pytest.raises(PlanError, match=what):
        check_policy(Choosing(facts(3), lambda batch: choice(batch, **values), window), batches(5))


def test_a_policy_that_draws_anew_is_noticed() -> None:
    class Restless(LookaheadPolicy):
        segments = 0

        def assignment(self) -> Assignment:
            type(self).segments += 1
            rng = np.random.default_rng(self.segments)
            return lambda rows: np.array_split(rng.permutation(rows.samples), 2)

    with pytest.raises(PlanError, match=r"the same batches give other plans|slots are used up: .* were measured"):
        check_policy(Restless(NoSettings(), facts(2)), batches(5))


def test_a_planner_that_remembers_the_segment_before_is_noticed() -> None:
    class Remembers(LookaheadPlanner):
        def start_segment(self, *, training: bool, first_step: int) -> None:
            waits = self._prefetch_after
            super().start_segment(training=training, first_step=first_step)
            self._prefetch_after = waits

    class Remembering(LookaheadPolicy):
        is_native = False
        rule = Remembers

    check_policy(LookaheadPolicy(NoSettings(), facts(2)), batches(5))
    with pytest.raises(PlanError, match=r"in a segment behind another one, .* waits for ever"):
        check_policy(Remembering(NoSettings(), facts(2)), batches(5))


def test_an_order_that_repeats_samples_is_noticed() -> None:
    class Backwards(SampleOrder):
        def inside_block(self, block: int) -> NDArray[np.int64]:
            return super().inside_block(block)[::-1] // 2 * 2

    class Even(LookaheadPolicy):
        @classmethod
        def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
            return Backwards(default.rows, default.block_rows, default.seed, default.epoch)

    with pytest.raises(PlanError, match="samples uses sample 0 several times; use each sample once"):
        check_policy(Even(NoSettings(), facts(2)), batches(5))


class WritesEachUpdate(HomePlanner):
    """Writes back what a batch updates, and keeps it."""

    def written(self, number: int, batch: UsedBatch, placed: Placed, retired: RetiredByGroup) -> RetiredByGroup:  # noqa: ARG002
        rows = RetiredRows([batch.unique.astype(np.int64)], [placed.slots], [placed.homes])
        return {self.retiring_group(number): rows}


class KeepsWhatIsWritten(Policy):
    sharings = ("home",)

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
        own = self.facts
        return WritesEachUpdate(
            own.total_rows, own.trainers, window, shared, private, feature_tables=own.feature_tables
        )


def test_rows_that_are_put_with_groups_side_by_side_are_noticed() -> None:
    """The older record could be the last; where groups wait for each other all is well."""
    kept = replace(facts(2), sharing="home")
    check_policy(KeepsWhatIsWritten(NoSettings(), kept), batches(3), Window(4, 1))
    promising = type("Promising", (KeepsWhatIsWritten,), {"writes_apart": True})
    with pytest.raises(PlanError, match=r"writes row \d+ back, and that of group \d+ may still be on .* writes_apart"):
        check_policy(promising(NoSettings(), kept), batches(3), Window(4, 1))
    check_policy(promising(NoSettings(), kept), batches(3), Window(1, 1))  # each batch waits for the one before
