"""The search finds planted groups, beats others at the same budget, and repeats itself."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from data_prep.search.clusters import Assignment, LearnedClusters
from data_prep.search.descriptors import describe_columns
from data_prep.search.features import ColumnFeatures
from data_prep.search.pipelines import PIPELINES
from data_prep.search.search import Choice, SearchSettings, Try, best_of, search
from data_prep.search.small_model import score_features
from tests.unit.data_prep.search.planted import GROUPS, planted_rows

SETTINGS = SearchSettings(clusters=2, episodes=12, draws=20, seed=1)


class RandomClusters:
    """Groups at random, which learn nothing."""

    def __init__(self, columns: int, clusters: int, seed: int) -> None:
        self._rng, self._columns, self._clusters = np.random.default_rng(seed), columns, clusters

    def propose(self) -> Assignment:
        return tuple(self._rng.integers(0, self._clusters, self._columns).tolist())

    def learn(self, assignment: Assignment, reward: float) -> None:
        """Nothing."""


class Planted:
    """The planted rows, and scores of chains on them, each computed once for all tests."""

    def __init__(self) -> None:
        self.rows = planted_rows()
        self.features = ColumnFeatures(self.rows)
        self.attributes = describe_columns(self.features, self.rows)
        self.score = cache(self._score)

    def _score(self, choice: Choice) -> float:
        matrix = self.features.matrix(self.features.described(choice))
        return score_features(matrix, self.rows.labels, self.rows.train, "log_loss")

    def search(self, settings: SearchSettings, clusters: object) -> list[Try]:
        return search(self.features.valid, self.features.has_missing, self.score, clusters, settings)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


def same_groups(one: Assignment, other: Assignment) -> bool:
    pairs = [(a == b, c == d) for a, c in zip(one, other, strict=True) for b, d in zip(one, other, strict=True)]
    return all(first == second for first, second in pairs)


@pytest.mark.slow
def test_planted_groups_are_found_and_beat_one_chain_and_random_groups(planted: Planted) -> None:
    learned = LearnedClusters(planted.attributes, 2, SETTINGS.seed)
    found = best_of(planted.search(SETTINGS, learned))
    assert same_groups(found.assignment, GROUPS)
    chains = {group: PIPELINES[chain] for group, chain in zip(GROUPS, found.choice, strict=True)}
    assert chains[0].reshaping in ("log", "quantiles")
    assert chains[1].reshaping in ("none", "clip")
    for seed in range(2):
        settings = SearchSettings(2, SETTINGS.episodes, SETTINGS.draws, seed=seed)
        at_random = best_of(planted.search(settings, RandomClusters(len(GROUPS), 2, seed)))
        assert found.score > at_random.score
    one = SearchSettings(1, SETTINGS.episodes, SETTINGS.draws, seed=1)
    single = best_of(planted.search(one, LearnedClusters(planted.attributes, 1, 1)))
    assert found.score > single.score + 0.05


def test_one_cluster_is_plain_random_search(planted: Planted) -> None:
    settings = SearchSettings(clusters=1, episodes=4, draws=5, seed=9)
    tried = planted.search(settings, LearnedClusters(planted.attributes, 1, 9))
    rng = np.random.default_rng([9, 1])
    sensible = [
        number
        for number, chain in enumerate(PIPELINES)
        if planted.features.valid[:, number].all() and chain.filling == "constant"
    ]
    drawn = [(int(rng.choice(sensible)),) * len(GROUPS) for _ in range(20)]
    assert [one.choice for one in tried] == drawn
    assert [one.score for one in tried] == [planted.score(choice) for choice in drawn]


def test_a_seed_repeats_a_search_and_another_does_not(planted: Planted) -> None:
    def tried(seed: int) -> list[Try]:
        settings = SearchSettings(clusters=2, episodes=3, draws=4, seed=seed)
        return planted.search(settings, LearnedClusters(planted.attributes, 2, seed))

    assert tried(3) == tried(3)
    assert tried(3) != tried(4)


def agreement(probabilities: NDArray[np.float32]) -> float:
    """How likely columns are together that belong together, and apart that do not; 0.5 by chance."""
    together = probabilities @ probabilities.T
    belong = np.equal.outer(GROUPS, GROUPS)
    return float(np.where(belong, together, 1 - together)[~np.eye(len(GROUPS), dtype=bool)].mean())


def learned_agreement(seed: int, episodes: int, *, tells: bool) -> float:
    """After so many episodes, whose rewards tell which groups are right, or nothing."""
    attributes = np.random.default_rng(seed).normal(size=(len(GROUPS), 5)).astype(np.float32)
    clusters = LearnedClusters(attributes, 2, seed)
    for _ in range(episodes):
        proposed = clusters.propose()
        right = np.equal.outer(proposed, proposed) == np.equal.outer(GROUPS, GROUPS)
        clusters.learn(proposed, float(right.mean()) if tells else 1.0)
    return agreement(clusters.probabilities().detach().numpy())


@pytest.mark.slow
def test_groups_that_score_well_become_likelier_whatever_columns_look_like() -> None:
    assert np.mean([learned_agreement(seed, 100, tells=True) for seed in (1, 3)]) > 0.65
    assert learned_agreement(1, 40, tells=False) < 0.6


class Fixed(RandomClusters):
    """Always the same groups."""

    def propose(self) -> Assignment:
        return (0, 0, 1)


def test_drawn_chains_make_sense_for_all_columns_of_a_cluster_and_are_alike_there() -> None:
    rng = np.random.default_rng(4)
    valid: NDArray[np.bool_] = rng.random((3, len(PIPELINES))) < 0.6
    valid[:, 0] = True
    missing = np.array([False, True, False])
    settings = SearchSettings(clusters=2, episodes=5, draws=40)
    tried = search(valid, missing, lambda _: 0.0, Fixed(3, 2, 1), settings)
    for one in tried:
        assert one.choice[0] == one.choice[1]
        assert all(valid[column, chain] for column, chain in enumerate(one.choice))
        assert PIPELINES[one.choice[2]].filling == "constant"  # nothing is missing there: all fillings are the same
    fillings = {PIPELINES[one.choice[0]].filling for one in tried}
    assert fillings == {"constant", "mean", "median", "indicator"}
    assert {one.choice for one in tried if one.is_fit} == {one.choice for one in tried}


@pytest.mark.parametrize(("fits", "episodes"), [(7, 50), (None, 2)])
def test_a_budget_ends_a_search(fits: int | None, episodes: int) -> None:
    valid = np.ones((3, len(PIPELINES)), dtype=bool)
    settings = SearchSettings(clusters=2, episodes=episodes, draws=5, fits=fits)
    tried = search(valid, np.ones(3, dtype=bool), lambda choice: -float(sum(choice)), Fixed(3, 2, 1), settings)
    assert sum(one.is_fit for one in tried) <= (fits or 10)
    assert len(tried) == (10 if fits is None else len(tried))
    assert best_of(tried).score == max(one.score for one in tried)


def test_a_model_that_learns_nothing_or_diverges_scores_as_the_mean_label() -> None:
    rng = np.random.default_rng(5)
    labels = (rng.random(400) < 0.25).astype(np.float32)
    rate = float(labels[:300].mean())
    plain = float(np.mean(np.where(labels[300:] > 0, np.log(rate), np.log(1 - rate))))
    huge = (1e18 * rng.normal(size=(400, 2))).astype(np.float32)
    assert score_features(huge, labels, 300, "log_loss") == pytest.approx(plain, rel=1e-6)
    assert score_features(huge * 0, labels, 300, "auc") == 0.5
    told = (labels + rng.normal(0, 0.3, 400)).astype(np.float32)[:, None]
    assert score_features(told, labels, 300, "log_loss") > plain + 0.2
    assert score_features(told, labels, 300, "auc") > 0.9
