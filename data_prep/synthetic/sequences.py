"""Synthetic histories: users with tastes, items of genres, and clicks on items like the newest ones of a history.

A model that pools a history, or better one that attends to those of its items that are like the offered one, finds what
a click depends on.

Shapes: `n` rows of a block, `H` items of all their histories, `U` users, `I` items.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.formats.sequences import LAYOUT
from data_prep.synthetic.drawing import BLOCK_ROWS, intercept_of, popularity, sigmoid

Int64s = NDArray[np.int64]

USERS, ITEMS, GENRES = 50_000, 20_000, 24
"""Distinct ids of each table."""
CLICK_RATE, BUY_RATE = 0.25, 0.05
"""Shares of rows with label 1, for each label: an item is bought only after a click."""
LONGEST_HISTORY, MEAN_HISTORY = 50, 12
NEWEST_ITEMS = 10
"""How many items at the end of a history decide about a click."""
_NO_HISTORY, _NO_GENRE, _NO_PRICE = 0.15, 0.05, 0.05
"""Shares of rows without a history, without a genre, and without a price."""
_OWN_TASTE = 0.75
"""Share of items that are drawn from a user's two genres; the others are drawn from all, by popularity."""


@dataclass(frozen=True)
class _World:
    """Users and items; drawn once per seed.

    Attributes:
        users: cumulative probability of each user, float64 `[U]`.
        items: cumulative probability of each item, sorted by genre, float64 `[I]`.
        by_genre: the items sorted by genre, int64 `[I]`.
        genre_starts: where each genre begins in `by_genre`, and the end, int64 `[GENRES + 1]`.
        item_genres: first and second genre of each item, int64 `[I, 2]`.
        first_share: the first genre's share of an item, in hundredths, int64 `[I]`; 100 for items of one genre.
        user_genres: the genres that each user likes most and second most, int64 `[U, 2]`.
        item_appeal: what each item adds to the log-odds of a click, float64 `[I]`.
        user_appetite: what each user adds to the log-odds of a click, float64 `[U]`.
    """

    users: NDArray[np.float64]
    items: NDArray[np.float64]
    by_genre: Int64s
    genre_starts: Int64s
    item_genres: Int64s
    first_share: Int64s
    user_genres: Int64s
    item_appeal: NDArray[np.float64]
    user_appetite: NDArray[np.float64]

    @classmethod
    def draw(cls, seed: int, zipf: float, users: int, items: int) -> "_World":
        rng = np.random.default_rng([seed, 0])
        item_genres = rng.integers(0, GENRES, (items, 2))
        by_genre = np.argsort(item_genres[:, 0], kind="stable")
        shares = np.diff(popularity(items, zipf), prepend=0.0)[by_genre]
        return cls(
            users=popularity(users, zipf),
            items=np.cumsum(shares),
            by_genre=by_genre,
            genre_starts=np.searchsorted(item_genres[by_genre, 0], np.arange(GENRES + 1)),
            item_genres=item_genres,
            first_share=np.where(item_genres[:, 0] == item_genres[:, 1], 100, rng.integers(50, 101, items)),
            user_genres=rng.integers(0, GENRES, (users, 2)),
            item_appeal=rng.normal(0.0, 0.5, items),
            user_appetite=rng.normal(0.0, 0.5, users),
        )

    def items_for(self, rng: np.random.Generator, users: Int64s) -> Int64s:
        """An item for each of `users`, int64 of the same shape: mostly of a genre that the user likes."""
        genres = self.user_genres[users, (rng.random(len(users)) < 0.3).astype(np.int64)]
        any_genre = rng.random(len(users)) >= _OWN_TASTE
        first = np.where(any_genre, 0, self.genre_starts[genres])
        last = np.where(any_genre, len(self.items), self.genre_starts[genres + 1])
        # A genre without items, which small tables may have, gives any item.
        first, last = np.where(first == last, 0, first), np.where(first == last, len(self.items), last)
        below = np.where(first > 0, self.items[first - 1], 0.0)
        drawn = below + rng.random(len(users)) * (self.items[last - 1] - below)
        items: Int64s = self.by_genre[np.clip(np.searchsorted(self.items, drawn, side="right"), first, last - 1)]
        return items


@dataclass(frozen=True)
class _Rows:
    """The features of a block of rows.

    Attributes:
        users: the user of each row, int64 `[n]`.
        items: the item on offer, int64 `[n]`.
        lengths: number of items of each history, int64 `[n]`.
        history: items of all histories, oldest first, int64 `[H]`.
        price: price relative to a usual item, float64 `[n]`, with two decimals.
        affinity: share of the newest items of the history that have the first genre of the item, float64 `[n]`.
        log_odds: log-odds of a click before the intercept, float64 `[n]`.
    """

    users: Int64s
    items: Int64s
    lengths: Int64s
    history: Int64s
    price: NDArray[np.floating]
    affinity: NDArray[np.float64]
    log_odds: NDArray[np.float64]

    @classmethod
    def draw(cls, rng: np.random.Generator, world: _World) -> "_Rows":
        users = np.searchsorted(world.users, rng.random(BLOCK_ROWS), side="right").astype(np.int64)
        items = world.items_for(rng, users)
        lengths = np.minimum(rng.geometric(1 / MEAN_HISTORY, BLOCK_ROWS), LONGEST_HISTORY).astype(np.int64)
        lengths[rng.random(BLOCK_ROWS) < _NO_HISTORY] = 0
        history = world.items_for(rng, np.repeat(users, lengths))
        affinity = _affinity(world, items, lengths, history)
        standard = rng.standard_normal(BLOCK_ROWS)
        log_odds = 3.0 * affinity + world.item_appeal[items] + world.user_appetite[users] - 0.4 * standard
        price = np.round(np.exp(0.8 * standard), 2)
        return cls(users, items, lengths, history, price, affinity, log_odds)


def _affinity(world: _World, items: Int64s, lengths: Int64s, history: Int64s) -> NDArray[np.float64]:
    """Share of each history's newest items that are like the item on offer, float64 `[n]`; 0 without a history."""
    rows = np.repeat(np.arange(len(items)), lengths)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(history))
    alike = world.item_genres[history, 0] == world.item_genres[items[rows], 0]
    counted = np.bincount(rows, weights=alike & (from_end <= NEWEST_ITEMS), minlength=len(items))
    share: NDArray[np.float64] = counted / np.clip(lengths, 1, NEWEST_ITEMS)
    return share


def sequence_blocks(rows: int, seed: int, zipf: float, ids_at_most: int | None) -> Iterator[pa.Table]:
    """Tables of up to `BLOCK_ROWS` rows, columns as in the file; each block has a random stream of its own.

    Args:
        rows: number of rows, 1 or more.
        seed: determines users, items and rows, 0 or more.
        zipf: exponent of the popularity of users and items, 0 or more.
        ids_at_most: most users and most items; None takes `USERS` and `ITEMS`.
    """
    users, items = (ids if ids_at_most is None else min(ids, ids_at_most) for ids in (USERS, ITEMS))
    world = _World.draw(seed, zipf, users, items)
    rng = np.random.default_rng([seed, 1])
    sample = _Rows.draw(rng, world)
    clicks = intercept_of(sample.log_odds, CLICK_RATE)
    clicked = rng.random(BLOCK_ROWS) < sigmoid(sample.log_odds + clicks)
    buys = intercept_of(_buying(sample)[clicked], BUY_RATE / CLICK_RATE)
    for block, first in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([seed, 2, block])
        drawn = _Rows.draw(rng, world)
        clicked = rng.random(BLOCK_ROWS) < sigmoid(drawn.log_odds + clicks)
        bought = clicked & (rng.random(BLOCK_ROWS) < sigmoid(_buying(drawn) + buys))
        no_price, no_genre = rng.random(BLOCK_ROWS) < _NO_PRICE, rng.random(BLOCK_ROWS) < _NO_GENRE
        columns = [
            pa.array(clicked.astype(np.uint8)),
            pa.array(bought.astype(np.uint8)),
            _hundredths(rng.integers(50, 201, BLOCK_ROWS)),
            pa.array(drawn.price, mask=no_price),
            pa.array(drawn.lengths + rng.poisson(2.0, BLOCK_ROWS)),
            pa.array(drawn.users),
            pa.array(drawn.items),
            _joined(pc.cast(pa.array(drawn.history), pa.string()), drawn.lengths),
            _genres(world, drawn.items, no_genre),
        ]
        yield pa.table(columns, names=list(LAYOUT.names)).slice(0, rows - first)


def _buying(rows: _Rows) -> NDArray[np.float64]:
    """Log-odds `[n]` that an item is bought once it was clicked, before the intercept."""
    log_odds: NDArray[np.float64] = 1.5 * rows.affinity - 0.8 * np.log(np.maximum(rows.price, 0.01))
    return log_odds


def _genres(world: _World, items: Int64s, missing: NDArray[np.bool_]) -> pa.StringArray:
    """The genres of items `[n]` with their shares, as `g3:0.75|g7:0.25`; empty where they are missing."""
    shares = np.stack([world.first_share[items], 100 - world.first_share[items]], axis=1)
    shares[missing] = 0
    present = shares > 0
    names = pc.binary_join_element_wise("g", pc.cast(pa.array(world.item_genres[items][present]), pa.string()), "")
    return _joined(pc.binary_join_element_wise(names, _hundredths(shares[present]), ":"), present.sum(axis=1))


def _hundredths(numbers: Int64s) -> pa.StringArray:
    """Numbers of hundredths as text, such as 0.75."""
    return pc.cast(pa.array(numbers / 100), pa.string())


def _joined(texts: pa.StringArray, lengths: Int64s) -> pa.StringArray:
    """A text for each row `[n]`: the next `lengths` texts of each row, joined with `|`."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), "|")
