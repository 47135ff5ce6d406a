"""Policies whose trainers add changes to rows that others change, too: every way to break that is noticed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, TrainerPlan
from bagpipe_hpc.planning.checking.executor import PlanExecutor, train_plainly
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.end_to_end.added_changes import NO_ROWS, NO_SLOTS, AddedChanges, EveryRowPrivate
from tests.unit.planning.policy_batches import batches, facts


class Altered(AddedChanges):
    """Adds changes, but each part of a plan that does so is altered."""

    def __init__(self, run: RunFacts, alter: Callable[[TrainerPlan], TrainerPlan]) -> None:
        super().__init__(NoSettings(), run)
        self._alter = alter

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> EveryRowPrivate:
        planner, alter = super().planner(window, shared, private), self._alter
        plan = planner.plan

        def altered(number: int) -> BatchPlan:
            made = plan(number)
            return BatchPlan(made.shared, tuple(alter(part) if part.additions else part for part in made.trainers))

        planner.plan = altered  # type: ignore[method-assign]
        return planner


@pytest.mark.parametrize("trainers", [1, 2, 5])
def test_every_trainer_may_add_to_the_same_rows(trainers: int) -> None:
    """Slices without samples, as in the last batch, add nothing."""
    need = check_policy(AddedChanges(NoSettings(), facts(trainers)), batches(3))
    assert need.window == Window(1, 1)
    slices = [part for rows in batches(3) for part in np.array_split(rows.grid, trainers)]  # type: ignore[arg-type]
    assert need.total_rows == 2 * max(np.unique(part).size for part in slices)


def drawn_out(part: TrainerPlan) -> TrainerPlan:
    """Rows stay where they are."""
    return replace(part, add_rows=NO_ROWS, add_slots=NO_SLOTS, base_slots=NO_SLOTS)


BROKEN_ADDITIONS: dict[str, tuple[Callable[[TrainerPlan], TrainerPlan], str]] = {
    "base for row": (
        lambda part: replace(part, add_slots=part.base_slots, base_slots=part.add_slots),
        r"batch 0: trainer 0 adds row \d+ from slot \d+ less base slot \d+; it is in \d+, and as it was fetched in",
    ),
    "base of another row": (
        lambda part: replace(part, base_slots=np.roll(part.base_slots, 1)),  # type: ignore[arg-type]
        "adds row .* less base slot",
    ),
    "not fetched": (
        lambda part: replace(part, fetch_rows=NO_ROWS, fetch_slots=NO_SLOTS, new_slots=NO_SLOTS),
        "looks for row",
    ),
    "fewer fetched than based": (
        lambda part: replace(part, fetch_rows=part.fetch_rows[1:], fetch_slots=part.fetch_slots[1:]),
        r"batch 0: trainer 0: new_slots and merged_slots are those of \d+ rows, and \d+ are fetched",
    ),
    "without a base": (
        lambda part: replace(part, fetch_slots=part.private_slots, new_slots=None),
        "as it was fetched in none",
    ),
    "merged though it is new": (
        lambda part: replace(part, new_slots=None, merged_slots=part.new_slots),
        r"batch 0: trainer 0 merges row \d+ from slot \d+ less base slot \d+; it is in none",
    ),
    "base is updated": (
        lambda part: replace(part, private_slots=np.concatenate((part.private_slots, part.fetch_slots))),
        "is to update slot .* the base of row",
    ),
    "base is put": (
        lambda part: replace(
            drawn_out(part),
            write_back_rows=part.add_rows,
            write_back_slots=part.base_slots,  # type: ignore[arg-type]
        ),
        "writes row .* back from slot",
    ),
    "put and added": (
        lambda part: replace(part, write_back_rows=part.add_rows, write_back_slots=part.add_slots),  # type: ignore[arg-type]
        r"batch 0: row \d+ is written back and added with one group",
    ),
    "added twice": (
        lambda part: replace(
            part,
            **{name: np.repeat(getattr(part, name), 2) for name in ("add_rows", "add_slots", "base_slots")},
        ),
        "batch 0: trainer 0 adds a row twice with one group",
    ),
    "not added": (drawn_out, "still holds"),
    "no bases": (lambda part: replace(part, base_slots=None), "differ in length: .*'base_slots': 'none'"),
    "fewer bases": (
        lambda part: replace(part, base_slots=part.base_slots[1:]),  # type: ignore[index]
        "batch 0: trainer 0: add_rows, add_slots and base_slots differ in length",
    ),
}


@pytest.mark.parametrize("name", BROKEN_ADDITIONS)
def test_broken_additions_are_noticed(name: str) -> None:
    alter, what = BROKEN_ADDITIONS[name]
    with pytest.raises(PlanError, match=what):
        check_policy(Altered(facts(2), alter), batches(5))


def test_a_policy_says_that_it_adds() -> None:
    class Silent(AddedChanges):
        adds_rows = False

    with pytest.raises(PlanError, match="trainer 0 adds rows, and Silent does not say so: set adds_rows = True"):
        check_policy(Silent(NoSettings(), facts(2)), batches(5))


def test_an_evaluation_adds_nothing() -> None:
    class Always(AddedChanges):
        def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> EveryRowPrivate:
            planner = super().planner(window, shared, private)
            start = planner.start_segment
            planner.start_segment = lambda **_: start(training=True, first_step=0)  # type: ignore[method-assign]
            return planner

    with pytest.raises(PlanError, match="an evaluation"):
        check_policy(Always(NoSettings(), facts(2)), batches(5))


@pytest.mark.parametrize("waits", [True, False])
def test_a_row_is_read_behind_the_changes_of_others(waits: bool) -> None:
    """Row 5 goes from the first trainer to the second; in slots of its own, so that nothing else is in the way."""
    rows = [Bags.one_hot(np.asarray(part)) for part in ([[5], [6]], [[7], [5]])]
    policy = AddedChanges(NoSettings(), RunFacts(np.asarray([0, 9]), 2, batch_size=2))
    plans = list(plan_segment(policy.planner(Window(1, 1), 0), rows))
    moved = {name: getattr(plans[1].trainers[0], name) + 2 for name in ("private_slots", "fetch_slots")}
    moved |= {name: getattr(plans[1].trainers[0], name) + 2 for name in ("add_slots", "base_slots", "new_slots")}
    later = replace(plans[1].shared, prefetch_after=plans[1].shared.prefetch_after if waits else 0)
    plans[1] = BatchPlan(later, tuple(replace(part, **moved) for part in plans[1].trainers))
    executor = PlanExecutor(9, 2, 0, 4, eager=True, most_missing=0)
    if waits:
        executor.run(plans, rows)
        np.testing.assert_array_equal(executor.store, train_plainly(rows, 9, growth=1))
    else:
        with pytest.raises(PlanError, match=r"batch 1: trainer 1 looks row 5 up and misses 1 of others' updates; 0 at"):
            executor.run(plans, rows)
