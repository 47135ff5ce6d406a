"""The search: groups of columns are proposed, chains are drawn for each group, and the best of all is kept.

Shapes: `C` columns, `P` chains, `K` clusters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from data_prep.search.clusters import Assignment, Clusters
from data_prep.search.pipelines import FILLINGS, PIPELINES

Choice = tuple[int, ...]
"""The number of a chain for each column, `[C]`."""
_CHAINS_STREAM = 1
_IS_CONSTANT = np.array([chain.filling == FILLINGS[0] for chain in PIPELINES])


@dataclass(frozen=True)
class SearchSettings:
    """How much is tried.

    Attributes:
        clusters: most groups of columns, K.
        episodes: how often groups are proposed, E.
        draws: how often chains are drawn for them, R.
        fits: most models that are fitted; None: E times R.
        seed: same seed, same result.
    """

    clusters: int = 3
    episodes: int = 50
    draws: int = 20
    fits: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("clusters", "episodes", "draws"):
            if getattr(self, name) < 1:
                raise ConfigError(f"search-preprocessing: {name} = {getattr(self, name)}: use 1 or more")


@dataclass(frozen=True)
class Try:
    """Chains that were scored.

    Attributes:
        episode: the episode, from 0.
        assignment: the cluster of each column.
        choice: the chain of each column.
        score: the score; more is better.
        is_fit: whether a model was fitted for it; otherwise the same chains had been tried before.
    """

    episode: int
    assignment: Assignment
    choice: Choice
    score: float
    is_fit: bool


def search(
    valid: NDArray[np.bool_],
    has_missing: NDArray[np.bool_],
    score: Callable[[Choice], float],
    clusters: Clusters,
    settings: SearchSettings,
) -> list[Try]:
    """Search, and return all that was tried, in order.

    Args:
        valid: which chains make sense for which column, bool `[C, P]`; at least one for each column.
        has_missing: which columns lack numbers, bool `[C]`.
        score: scores a choice of chains.
        clusters: proposes groups of columns.
        settings: how much is tried.
    """
    rng = np.random.default_rng([settings.seed, _CHAINS_STREAM])
    budget = settings.fits or settings.episodes * settings.draws
    scores: dict[Choice, float] = {}
    tried: list[Try] = []
    for episode in range(settings.episodes):
        assignment = clusters.propose()
        begun = len(tried)
        for _ in range(settings.draws):
            if len(scores) == budget:
                break
            choice = _draw(assignment, valid, has_missing, rng)
            is_fit = choice not in scores
            if is_fit:
                scores[choice] = score(choice)
            tried.append(Try(episode, assignment, choice, scores[choice], is_fit))
        if len(tried) == begun:
            break
        clusters.learn(assignment, max(one.score for one in tried[begun:]))
    return tried


def best_of(tried: Sequence[Try]) -> Try:
    """The try with the best score; of equal ones the first."""
    return max(tried, key=lambda one: one.score)


def _draw(
    assignment: Assignment, valid: NDArray[np.bool_], has_missing: NDArray[np.bool_], rng: np.random.Generator
) -> Choice:
    """Draw a chain for each cluster, out of those that make sense for all its columns.

    Where no number of the cluster is missing, all fillings do the same, and only one of them is used.
    """
    groups = np.array(assignment)
    choice = np.zeros(len(groups), dtype=np.int64)
    for cluster in np.unique(groups):
        ours = groups == cluster
        allowed = valid[ours].all(axis=0)
        if not has_missing[ours].any():
            allowed &= _IS_CONSTANT
        choice[ours] = rng.choice(np.flatnonzero(allowed))
    return tuple(choice.tolist())
