"""Where a run stands by its evaluations: which was the best, and for how long none was better. Pure.

A checkpoint carries the standing before the evaluation of its own step, since a run that goes on from there evaluates
first. So it decides as a run that was never interrupted.
"""

import math
from dataclasses import dataclass, replace

from bagpipe_hpc.evaluation.click_evaluation import Evaluation

HIGHER_IS_BETTER = {"auc": True, "group_auc": True, "log_loss": False}
"""Measures by which evaluations can be compared."""


@dataclass(frozen=True)
class Standing:
    """The evaluations of a run so far.

    Attributes:
        measure: by which they are compared.
        samples: test rows of each.
        best_step: after which step the best one was; the first of equals.
        best: its value.
        to_beat: the value that the next one has to beat: of the last one that was better by enough (`Rule.least_gain`).
        without_better: number of evaluations since that one.
    """

    measure: str
    samples: int
    best_step: int
    best: float
    to_beat: float
    without_better: int


@dataclass(frozen=True)
class Rule:
    """How evaluations are compared.

    Attributes:
        measure: one of `HIGHER_IS_BETTER`.
        samples: test rows of the evaluations that are compared.
        patience: training ends after so many evaluations in a row that were not better; 0 never ends it.
        least_gain: by how much a value must be better than the one to beat, to count as better; 0: by any amount.
    """

    measure: str
    samples: int
    patience: int = 0
    least_gain: float = 0.0

    def next(self, before: Standing | None, step: int, evaluation: Evaluation) -> Standing | None:
        """The standing after an evaluation; the same as before where the measure has no meaning."""
        value = getattr(evaluation, self.measure)
        if value is None or math.isnan(value):
            return before
        if before is None:
            return Standing(self.measure, self.samples, step, value, value, 0)
        after = before
        if self._gain(before.best, value) > 0:
            after = replace(after, best_step=step, best=value)
        gain = self._gain(before.to_beat, value)
        if gain > 0 and gain >= self.least_gain:
            return replace(after, to_beat=value, without_better=0)
        return replace(after, without_better=before.without_better + 1)

    def applies_to(self, standing: Standing | None) -> bool:
        """Whether a standing of an earlier run can be continued by this rule."""
        return standing is not None and (standing.measure, standing.samples) == (self.measure, self.samples)

    def _gain(self, value: float, now: float) -> float:
        return now - value if HIGHER_IS_BETTER[self.measure] else value - now


class Judge:
    """Compares the evaluations of a run, the same on every trainer.

    Args:
        rule: how they are compared.
        start: the standing in the checkpoint that the run goes on from; None at the start.
    """

    def __init__(self, rule: Rule, start: Standing | None = None) -> None:
        self.rule = rule
        self.now = start
        self._before = start
        self._step = -1

    def see(self, step: int, evaluation: Evaluation) -> None:
        """Take in the evaluation after a step."""
        self._before, self._step = self.now, step
        self.now = self.rule.next(self.now, step, evaluation)

    def before(self, step: int) -> Standing | None:
        """The standing without the evaluation after this step: what its checkpoint carries."""
        return self._before if step == self._step else self.now

    def is_best(self, step: int) -> bool:
        """Whether the evaluation after this step is the best so far."""
        return self.now is not None and self.now.best_step == step

    @property
    def has_lost_patience(self) -> bool:
        """Whether training should end."""
        return self.now is not None and 0 < self.rule.patience <= self.now.without_better
