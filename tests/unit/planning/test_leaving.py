"""Rows may stay after their last use and leave behind a batch that does not use them, or with the closing plan."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.batch_rows import Bools, Int64s, LoadedBatch
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from tests.drawing import share_of

ROWS, TRAINERS = 60, 3
WINDOWS = [Window(1, 1), Window(2, 1), Window(4, 1), Window(5, 2), Window(7, 3)]


class Lingering(LookaheadPlanner):
    """No row leaves behind the batch that uses it last, but so many batches later."""

    def __init__(self, lingers: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lingers = lingers

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:  # noqa: ARG002
        return np.zeros(batch.unique.size, dtype=np.bool_)

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        resident = self.rows.resident
        return resident[self._last_use[resident] <= number - self._lingers]


class LingeringHome(Lingering, HomePlanner):
    """The same where each row has one home."""


class Made(Policy):
    """Planners that a function makes."""

    sharings = ("replicated", "home")

    def __init__(self, make: Callable[..., Planner], run: RunFacts) -> None:
        super().__init__(NoSettings(), run)
        self._make = make

    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Planner:
        return self._make(self.facts.total_rows, self.facts.trainers, window, shared, private)


def facts(**more: Any) -> RunFacts:
    return RunFacts(np.asarray([0, ROWS]), TRAINERS, batch_size=6, feature_tables=(0, 0), **more)


def batches(seed: int, count: int = 14) -> list[Bags]:
    rng = np.random.default_rng(seed)
    return [Bags.one_hot((ROWS * rng.random((6, 2)) ** 2).astype(np.int64)) for _ in range(count)]


@settings(max_examples=share_of(25), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 20),
    st.sampled_from(WINDOWS),
    st.sampled_from([Lingering, LingeringHome]),
)
def test_rows_may_leave_late(seed: int, lingers: int, window: Window, kind: type[Lingering]) -> None:
    """Twenty batches behind their last use is never: then they leave with the closing plan."""
    check_policy(Made(partial(kind, lingers), facts()), batches(seed), window)


class UsedNext(Lingering):
    """Rows leave although the next batch uses them."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        if not self._loaded:
            return np.empty(0, dtype=np.int64)
        following = self._loaded[0].unique
        return following[self.rows.has(following) & ~self.rows.are_in(following, batch.unique)].astype(np.int64)


class EarlyGroup(Lingering):
    """Rows leave with the group before."""

    def leaving_group(self, number: int) -> int:
        return self.window.group_that_leaves(number - 1)


class Absent(Lingering):
    """A row leaves that is in no cache."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:  # noqa: ARG002
        return np.flatnonzero(~self.rows.has(np.arange(ROWS)))[:1]


class Twice(Lingering):
    """Rows leave twice."""

    def leaving(self, number: int, batch: LoadedBatch) -> Int64s:
        return np.repeat(super().leaving(number, batch), 2)


MISUSED: dict[str, tuple[Callable[..., Planner], str]] = {
    "used by the batch": (partial(Lingering, 0), r"batch 0: row \d+ is to leave behind a batch that uses it"),
    "used by the next one": (partial(UsedNext, 1), "fetches row .* still holds|end otherwise|looks for row"),
    "with the group before": (partial(EarlyGroup, 1), "still holds|used up|end otherwise"),
    "in no cache": (partial(Absent, 1), r"batch 0: row \d+ is to leave, and is in no cache"),
    "twice": (partial(Twice, 1), r"batch 1: row \d+ is to leave twice"),
}


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_is_noticed(name: str) -> None:
    make, what = MISUSED[name]
    with pytest.raises(PlanError, match=what):
        check_policy(Made(make, facts()), batches(5), Window(4, 1))
