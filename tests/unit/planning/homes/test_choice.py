"""Homes of fetched rows: those that the rule says, about as much to exchange for each, and broken rules are found."""

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.planning.batch_rows import Bools, Int64s
from bagpipe_hpc.planning.homes import choice
from bagpipe_hpc.planning.homes.choice import POPULAR_USERS, PopularLoad, choose_homes
from bagpipe_hpc.planning.homes.slots import UsedBatch
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.window import Window
from tests.unit.planning.lookahead.moved_rows import homes_by_the_rule

TABLE_ROWS = 2000


def a_planner(trainers: int, kind: type[HomePlanner] = HomePlanner) -> HomePlanner:
    return kind(TABLE_ROWS, trainers, Window(1, 1))


def loaded(planner: HomePlanner, rows: NDArray[np.integer]) -> UsedBatch:
    """A batch of rows `[n, F]`."""
    batch = planner.rows.look_through(Bags.one_hot(rows), slice_bounds(len(rows), planner.trainers))
    assert isinstance(batch, UsedBatch)
    return batch


def of_users(users: Sequence[Sequence[int]]) -> UsedBatch:
    """A batch with a row for each list of the trainers that use it."""
    pairs = [(row, user) for row, of_row in enumerate(users) for user in of_row]
    rows, trainers = (np.asarray(part, dtype=np.int64) for part in zip(*pairs, strict=True))
    of_rows = np.arange(len(users))
    return UsedBatch(of_rows, [0], 0, of_rows, np.zeros(0, dtype=np.int32), rows, trainers)


def users_of(batch: UsedBatch, fetched: Bools) -> list[list[int]]:
    """Of each fetched row, ascending."""
    return [batch.pair_users[batch.pair_rows == row].tolist() for row in np.flatnonzero(fetched)]


def zipf_rows(seed: int, samples: int, features: int) -> NDArray[np.integer]:
    """Rows `[n, F]` by popularity."""
    weights = np.arange(1, TABLE_ROWS + 1) ** -1.05
    return np.random.default_rng(seed).choice(TABLE_ROWS, (samples, features), p=weights / weights.sum())


def exchanged(homes: NDArray[np.integer], users: Sequence[Sequence[int]], trainers: int) -> Int64s:
    """Gradients that come in for popular rows, by home."""
    popular = [(home, len(of_row) - 1) for home, of_row in zip(homes.tolist(), users, strict=True) if len(of_row) >= 8]
    of_homes, rows = (np.asarray(part) for part in zip(*popular, strict=True))
    return np.bincount(of_homes, weights=rows, minlength=trainers).astype(np.int64)


def test_by_hand() -> None:
    """Rows 0, 2, 4 and 6 have few users, which take them in turn; the others have many."""
    users = [[1, 2], range(10), [1, 2], range(8), [1, 2, 3, 4, 5, 6, 7], range(1, 9), [4], range(10), [0, *range(2, 9)]]
    # Load: trainer 0 gets 9, 1 gets 7, then 2 gets 7 and 3 gets 9; of the last row's users 4 to 8 have nothing so far.
    expected = [1, 0, 2, 1, 3, 2, 4, 3, 4]
    batch = of_users([list(of_row) for of_row in users])
    fetched = np.ones(len(users), dtype=np.bool_)
    assert choose_homes(batch, fetched, PopularLoad(10)).tolist() == expected
    # Of the rows that are fetched alone: in turn are now 2, 4 and 6, and trainer 1 gets 7, then 0 gets 9.
    fetched[[0, 1, 3]] = False
    assert choose_homes(batch, fetched, PopularLoad(10)).tolist() == [1, 2, 1, 4, 0, 2]


def test_who_has_least_to_exchange_gets_the_next_row() -> None:
    """Not who has the fewest rows: with one each, trainer 0 has 9 to exchange and 1 has 7, so 1 gets two more of 1."""
    load = PopularLoad(10)
    users = [range(10), range(1, 9), [0, 1], [0, 1], [0, 1], [0, 1]]
    assert [load.take(np.asarray(of_row)) for of_row in users] == [0, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("trainers", range(1, POPULAR_USERS))
def test_few_trainers_take_all_rows_in_turn(trainers: int) -> None:
    """No row is popular: the n-th that is fetched is for user n mod the number of its users."""
    planner = a_planner(trainers)
    batch = loaded(planner, zipf_rows(trainers, 200, 3))
    fetched = np.random.default_rng(1).random(batch.unique.size) < 0.7
    in_turn = [of_row[n % len(of_row)] for n, of_row in enumerate(users_of(batch, fetched))]
    assert planner.choose_homes(batch, fetched).tolist() == in_turn


@given(st.integers(1, 30), st.integers(0, 2**32), st.data())
def test_homes_are_those_of_the_rule(trainers: int, seed: int, data: st.DataObject) -> None:
    """For batch after batch, whichever rows are fetched."""
    planner = a_planner(trainers)
    for number in range(3):
        batch = loaded(planner, zipf_rows(seed + number, data.draw(st.integers(0, 150)), 2))
        fetched = np.random.default_rng(seed).random(batch.unique.size) < data.draw(st.sampled_from([0, 0.3, 1]))
        assert planner.choose_homes(batch, fetched).tolist() == homes_by_the_rule(users_of(batch, fetched))


@pytest.mark.parametrize("trainers", [8, 10, 64])
def test_rows_of_all_trainers_are_shared_out_evenly(trainers: int) -> None:
    """Whatever lies between them: each home gets five of them, and so exchanges as much as any other."""
    everyone = list(range(trainers))
    few = [[trainer] for trainer in everyone] + [[0, trainer] for trainer in everyone[1:]]
    drawn = np.random.default_rng(3).integers(0, len(few), 3 * trainers)
    rows = [everyone] * 5 * trainers + [few[row] for row in drawn]
    users = [rows[row] for row in np.random.default_rng(4).permutation(len(rows))]
    homes = choose_homes(of_users(users), np.ones(len(users), dtype=np.bool_), PopularLoad(trainers))
    assert set(exchanged(homes, users, trainers).tolist()) == {5 * (trainers - 1)}


def test_popular_rows_of_a_zipf_law_are_balanced() -> None:
    """In turn, one of 64 homes had three times as much to exchange as they have on average, and another one nothing."""
    planner, in_turn = a_planner(64), a_planner(64, PopularRowsInTurn)
    batch = loaded(planner, zipf_rows(5, 4096, 4))
    fetched = np.ones(batch.unique.size, dtype=np.bool_)
    users = users_of(batch, fetched)
    of_rule, by_turns = (exchanged(kind.choose_homes(batch, fetched), users, 64) for kind in (planner, in_turn))
    assert of_rule.max() < 1.2 * of_rule.mean()
    assert of_rule.min() > 0.8 * of_rule.mean()
    assert by_turns.max() > 2.5 * by_turns.mean()


class PopularRowsInTurn(HomePlanner):
    """No row is popular."""

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        with patch.object(choice, "POPULAR_USERS", self.trainers + 1):
            return super().choose_homes(batch, fetched)


class PopularFromNineUsers(HomePlanner):
    """A row of eight users is not popular."""

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        with patch.object(choice, "POPULAR_USERS", POPULAR_USERS + 1):
            return super().choose_homes(batch, fetched)


class NumbersPopularRowsToo(HomePlanner):
    """A popular row counts as a turn."""

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        homes = super().choose_homes(batch, fetched)
        for turn, of_row in enumerate(users_of(batch, fetched)):
            homes[turn] = homes[turn] if len(of_row) >= POPULAR_USERS else of_row[turn % len(of_row)]
        return homes


class KeepsTheLoad(HomePlanner):
    """What homes got for the batches before counts, too."""

    _kept: PopularLoad | None = None

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        self._kept = self._kept or PopularLoad(self.trainers)
        return choose_homes(batch, fetched, self._kept)


class RowsForLoad(PopularLoad):
    def take(self, users: Int64s) -> int:
        home = int(users[self._rows[users].argmin()])
        self._rows[home] += 1
        return home


class CountsRows(HomePlanner):
    """A home's load is the number of its popular rows, however many use them."""

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        return choose_homes(batch, fetched, RowsForLoad(self.trainers))


class LastForLoad(PopularLoad):
    def take(self, users: Int64s) -> int:
        return super().take(users[::-1])


class LastOfEquals(HomePlanner):
    """Of several users with the least load it is the last."""

    def choose_homes(self, batch: UsedBatch, fetched: Bools) -> NDArray[np.integer]:
        return choose_homes(batch, fetched, LastForLoad(self.trainers))


MUTANTS = [PopularRowsInTurn, PopularFromNineUsers, NumbersPopularRowsToo, KeepsTheLoad, CountsRows, LastOfEquals]


def follows_the_rule(kind: type[HomePlanner]) -> bool:
    """Whether a planner of 20 trainers gives the homes of the rule for two batches."""
    planner = a_planner(20, kind)
    for seed in range(2):
        batch = loaded(planner, zipf_rows(seed, 1000, 2))
        fetched = np.ones(batch.unique.size, dtype=np.bool_)
        if planner.choose_homes(batch, fetched).tolist() != homes_by_the_rule(users_of(batch, fetched)):
            return False
    return True


def test_the_sound_planner_follows_the_rule() -> None:
    assert follows_the_rule(HomePlanner)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_choice_is_found(mutant: type[HomePlanner]) -> None:
    assert not follows_the_rule(mutant)
