"""Synthetic clicks in Criteo's format, with a planted model that a recommendation model can find.

Shapes: `n` rows of a block, `F` = 26 tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.formats.hex_columns import format_hex
from data_prep.synthetic.drawing import BLOCK_ROWS, intercept_of, popularity, sigmoid

# fmt: off
KAGGLE_IDS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)
"""Distinct ids of each table of the whole Criteo Kaggle data: 33.8 million."""
TABLE_IDS = (
    1460, 583, 60000, 30000, 305, 24, 12517, 633, 3, 20000, 5683, 50000, 3194,
    27, 14992, 40000, 10, 5652, 2173, 4, 45000, 18, 15, 25000, 105, 22000,
)
"""Default number of distinct ids of each table: `KAGGLE_IDS`, with the largest cut to tens of thousands."""
MISSING_IDS = (
    0, 0, .03, .03, 0, .12, 0, 0, 0, 0, 0, .03, 0,
    0, 0, .03, 0, 0, .44, .44, .03, .76, 0, .03, .44, .44,
)
"""Share of missing values of each table, as in the Criteo Kaggle data."""
MISSING_INTEGERS = (.45, 0, .21, .22, .03, .22, .04, 0, .04, .45, .04, .76, .22)
"""Share of missing values of each integer column, as in the Criteo Kaggle data."""
INTEGER_LOG_MEAN = (.5, 2.5, 2, 1.6, 8, 3.5, 1.8, 2.3, 4, .1, .8, .1, 1.8)
"""Mean of the logarithm of each integer column, which is log-normal and so heavy-tailed."""
INTEGER_LOG_STD = (1.2, 2, 1.4, 1, 2.2, 1.6, 1.5, 1.1, 1.5, .5, .9, .6, 1.1)
"""Standard deviation of the logarithm of each integer column."""
# fmt: on

CLICK_RATE = 0.25
"""Share of rows with label 1, about that of the Criteo Kaggle data."""

_SMALL_TABLE_IDS = 1000
# Standard deviations that the dense columns, the small tables and the large tables contribute to a row's log-odds.
# Small tables and dense columns lead because an id must be seen several times before its weight can be learned.
_DENSE_STD, _SMALL_TABLES_STD, _LARGE_TABLES_STD = 1.2, 1.5, 0.7


@dataclass(frozen=True)
class _PlantedModel:
    """What decides the labels; drawn once per seed.

    Attributes:
        cumulative: per table, the probability of an id up to each rank, float64 `[ids]`.
        id_weights: per table, what each id adds to the log-odds, float64 `[ids]`.
        integer_weights: what a standard deviation of each column's logarithm adds to the log-odds, float64 `[13]`.
    """

    cumulative: tuple[NDArray[np.float64], ...]
    id_weights: tuple[NDArray[np.float64], ...]
    integer_weights: NDArray[np.float64]

    @classmethod
    def draw(cls, seed: int, zipf: float, table_ids: tuple[int, ...]) -> "_PlantedModel":
        rng = np.random.default_rng([seed, 0])
        small = np.array(table_ids) <= _SMALL_TABLE_IDS
        large_tables = max(1, int((~small).sum()))
        scale = np.where(small, _SMALL_TABLES_STD / np.sqrt(small.sum()), _LARGE_TABLES_STD / np.sqrt(large_tables))
        id_weights = tuple(rng.normal(0.0, std, size=ids) for ids, std in zip(table_ids, scale, strict=True))
        integer_weights = rng.choice([-1.0, 1.0], size=13) * _DENSE_STD / np.sqrt(13)
        return cls(tuple(popularity(ids, zipf) for ids in table_ids), id_weights, integer_weights)


@dataclass(frozen=True)
class _Features:
    """The features of a block of rows.

    Attributes:
        ids: per table, ranks (0 is the most frequent id), int64 `[n]`.
        ids_missing: per table, bool `[n]`.
        integers: per integer column, int64 `[n]`.
        integers_missing: per integer column, bool `[n]`.
        log_odds: the planted model's log-odds before its intercept, float64 `[n]`.
    """

    ids: list[NDArray[np.int64]]
    ids_missing: list[NDArray[np.bool_]]
    integers: list[NDArray[np.int64]]
    integers_missing: list[NDArray[np.bool_]]
    log_odds: NDArray[np.float64]

    @classmethod
    def draw(cls, rng: np.random.Generator, model: _PlantedModel) -> "_Features":
        features = cls([], [], [], [], np.zeros(BLOCK_ROWS))
        for table, cumulative in enumerate(model.cumulative):
            ids = np.searchsorted(cumulative, rng.random(BLOCK_ROWS), side="right").astype(np.int64)
            missing = rng.random(BLOCK_ROWS) < MISSING_IDS[table]
            features.ids.append(ids)
            features.ids_missing.append(missing)
            features.log_odds[:] += np.where(missing, 0.0, model.id_weights[table][ids])
        for column, weight in enumerate(model.integer_weights):
            standard = rng.standard_normal(BLOCK_ROWS)
            # The subtraction gives zeros, and sometimes a negative count, both of which the real data has.
            logarithm = INTEGER_LOG_MEAN[column] + INTEGER_LOG_STD[column] * standard
            missing = rng.random(BLOCK_ROWS) < MISSING_INTEGERS[column]
            features.integers.append(np.floor(np.exp(logarithm)).astype(np.int64) - (column == 1))
            features.integers_missing.append(missing)
            features.log_odds[:] += np.where(missing, 0.0, weight * standard)
        return features


def click_blocks(rows: int, seed: int, zipf: float, ids_at_most: int | None) -> Iterator[pa.Table]:
    """Tables of up to `BLOCK_ROWS` rows, columns as in the file; each block has a random stream of its own.

    Args:
        rows: number of rows, 1 or more.
        seed: determines the planted model and the rows, 0 or more.
        zipf: exponent of the popularity of ids, 0 or more.
        ids_at_most: cut the tables of the Criteo Kaggle data to this many ids each; None takes `TABLE_IDS`.
    """
    table_ids = TABLE_IDS if ids_at_most is None else tuple(min(ids, ids_at_most) for ids in KAGGLE_IDS)
    model = _PlantedModel.draw(seed, zipf, table_ids)
    intercept = intercept_of(_Features.draw(np.random.default_rng([seed, 1]), model).log_odds, CLICK_RATE)
    for block, first in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([seed, 2, block])
        features = _Features.draw(rng, model)
        clicked = rng.random(BLOCK_ROWS) < sigmoid(features.log_odds + intercept)
        columns: list[pa.Array] = [pa.array(clicked.astype(np.uint8))]
        for integers, missing in zip(features.integers, features.integers_missing, strict=True):
            columns.append(pa.array(integers, mask=missing))
        for table, (ids, missing) in enumerate(zip(features.ids, features.ids_missing, strict=True)):
            columns.append(format_hex(scatter_ids(ids, table), missing))
        yield pa.table(columns, names=[str(column) for column in range(len(columns))]).slice(0, rows - first)


def scatter_ids(ids: NDArray[np.int64], table: int) -> NDArray[np.uint32]:
    """32-bit values that look like Criteo's hashes; distinct for distinct ids of a table (MurmurHash3's finaliser)."""
    mixed = (ids + (table << 20)).astype(np.uint32)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
