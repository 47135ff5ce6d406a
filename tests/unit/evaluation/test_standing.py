"""Which evaluation was the best and when training ends, against the whole list of values."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.evaluation.standing import HIGHER_IS_BETTER, Judge, Rule, Standing

VALUES = st.lists(st.sampled_from([0.5, 0.51, 0.52, 0.6, 0.7, math.nan]), max_size=12)
RULES = st.builds(
    Rule,
    measure=st.sampled_from(sorted(HIGHER_IS_BETTER)),
    samples=st.just(10),
    patience=st.integers(0, 4),
    least_gain=st.sampled_from([0.0, 0.015, 0.1]),
)


def evaluation(measure: str, value: float) -> Evaluation:
    others = {"auc": 0.5, "log_loss": 0.5, "group_auc": None} | {measure: value}
    return Evaluation(samples=10, auc_error=0.0, normalised_entropy=1.0, calibration=1.0, **others)  # type: ignore[arg-type]


def plain_best(rule: Rule, values: list[float]) -> int | None:
    """Place of the first of the best values."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return None
    return values.index(max(known) if HIGHER_IS_BETTER[rule.measure] else min(known))


def plain_end(rule: Rule, values: list[float]) -> bool:
    """Whether the last `patience` values that mean anything all are no better than the one to beat before them."""
    known = [value if HIGHER_IS_BETTER[rule.measure] else -value for value in values if not math.isnan(value)]
    to_beat = 0
    for place in range(len(known)):
        gain = known[place] - known[to_beat]
        if gain > 0 and gain >= rule.least_gain:
            to_beat = place
    return bool(known) and 0 < rule.patience <= len(known) - 1 - to_beat


@given(RULES, VALUES)
def test_the_best_and_the_end_are_those_of_the_whole_list(rule: Rule, values: list[float]) -> None:
    judge = Judge(rule)
    for step, value in enumerate(values):
        judge.see(step, evaluation(rule.measure, value))
        best = plain_best(rule, values[: step + 1])
        assert (judge.now.best_step if judge.now else None) == best
        assert judge.is_best(step) == (best == step)
        assert judge.has_lost_patience == plain_end(rule, values[: step + 1])


@given(RULES, VALUES, st.integers(0, 12))
def test_a_run_that_goes_on_decides_as_one_that_was_left_alone(rule: Rule, values: list[float], cut: int) -> None:
    """Its checkpoint has the standing before the evaluation of its step, which the resumed run makes once more."""
    whole, cut = Judge(rule), min(cut, len(values))
    standings: list[Standing | None] = [None]
    for step, value in enumerate(values[:cut]):
        standings.append(whole.before(step))
        whole.see(step, evaluation(rule.measure, value))
        assert whole.before(step) == standings[-1]  # whether the checkpoint is written before or after
        assert whole.before(step + 1) == whole.now
    first = max(0, cut - 1)
    resumed = Judge(rule, standings[-1])
    for step, value in enumerate(values[first:], first):
        resumed.see(step, evaluation(rule.measure, value))
    for step, value in enumerate(values[cut:], cut):
        whole.see(step, evaluation(rule.measure, value))
    assert resumed.now == whole.now


def test_a_standing_of_other_evaluations_does_not_go_on() -> None:
    standing = Standing("auc", 10, 4, 0.5, 0.5, 1)
    assert Rule("auc", 10).applies_to(standing)
    assert not Rule("log_loss", 10).applies_to(standing)
    assert not Rule("auc", 11).applies_to(standing)
    assert not Rule("auc", 10).applies_to(None)


def test_small_steps_keep_the_best_but_not_the_patience() -> None:
    """Each value is the best so far; none is better than the one to beat by enough, until they add up to it."""
    judge = Judge(Rule("auc", 10, patience=3, least_gain=0.025))
    ends = []
    for step, value in enumerate([0.5, 0.51, 0.52, 0.53, 0.535, 0.54, 0.545]):
        judge.see(step, evaluation("auc", value))
        assert judge.is_best(step)
        ends.append(judge.has_lost_patience)
    assert ends == [False] * 6 + [True]
    assert all(first <= second for first, second in pairwise(ends))


@pytest.mark.parametrize("measure", sorted(HIGHER_IS_BETTER))
def test_measures_without_a_meaning_count_for_nothing(measure: str) -> None:
    judge = Judge(Rule(measure, 10, patience=1))
    for step in range(3):
        judge.see(step, evaluation(measure, math.nan))
    assert judge.now is None
    assert not judge.has_lost_patience
