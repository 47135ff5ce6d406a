"""The features that each chain makes of each column of the sample, from its training rows; which chains make sense.

Shapes: `n` rows, `C` columns that are searched, `P` chains.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.schema.columns import NumericColumn
from data_prep.schema.numbers import fit_numbers, parsed, quantile_numbers, refined
from data_prep.search.pipelines import CLIPPED_SHARES, PIPELINES, PLAIN, Pipeline, indicator_of
from data_prep.search.sampled_rows import SampledRows


class ColumnFeatures:
    """The features of the columns of a sample, each made once.

    Attributes:
        columns: the columns that are searched, whose training rows are not all equal, `[C]`.
        left_out: the other columns.
        has_missing: whether training rows lack numbers of a column, bool `[C]`.
        valid: whether a chain makes sense for a column, bool `[C, P]`: its training rows become finite and not all
            equal, and its scale does not divide by 0.

    Args:
        rows: the sample.
    """

    def __init__(self, rows: SampledRows) -> None:
        self._rows = rows
        self._numbers = dict(zip((column.name for column in rows.columns), rows.numbers, strict=True))
        self._made = cache(self._make)
        self._clips = {name: self._clip(name) for name in self._numbers}
        is_searched = [self._makes_sense(column, PIPELINES[PLAIN]) for column in rows.columns]
        self.columns = [column for column, searched in zip(rows.columns, is_searched, strict=True) if searched]
        self.left_out = [column for column, searched in zip(rows.columns, is_searched, strict=True) if not searched]
        missing = [self._train_rows(self._numbers[column.name]).null_count > 0 for column in self.columns]
        self.has_missing = np.array(missing, dtype=bool)
        self.valid = np.array(
            [[self._makes_sense(column, chain) for chain in PIPELINES] for column in self.columns], dtype=bool
        ).reshape(len(self.columns), len(PIPELINES))

    def present(self, column: int) -> NDArray[np.float64]:
        """The numbers of a column that training rows have."""
        return self._present(self.columns[column].name)

    def described(self, choice: Sequence[int]) -> list[NumericColumn]:
        """The schema's columns for a choice of chains, then those that say where numbers are missing.

        Args:
            choice: the number of a chain for each column, `[C]`.
        """
        described = [
            PIPELINES[chosen].column(column, self._clips[column.name])
            for column, chosen in zip(self.columns, choice, strict=True)
        ]
        indicators = [
            indicator_of(column)
            for column, chosen, missing in zip(self.columns, choice, self.has_missing, strict=True)
            if missing and PIPELINES[chosen].filling == "indicator"
        ]
        return described + indicators

    def matrix(self, described: Sequence[NumericColumn]) -> NDArray[np.float32]:
        """The features `[n, columns]` of columns of a schema, as `bagpipe prepare` makes them of the same rows."""
        return np.stack([self._made(column) for column in described], axis=1)

    def _make(self, column: NumericColumn) -> NDArray[np.float32]:
        given = self._numbers[column.source or column.name]
        if column.is_missing:
            missing: NDArray[np.bool_] = given.is_null().to_numpy(zero_copy_only=False)
            return missing.astype(np.float32)
        numbers = parsed(given, column)
        fitted = fit_numbers(column, lambda: [self._train_rows(numbers)])
        with np.errstate(over="ignore"):
            return refined(numbers, column, fitted).astype(np.float32)

    def _makes_sense(self, column: NumericColumn, chain: Pipeline) -> bool:
        clip = self._clips[column.name]
        if chain.reshaping == "clip" and clip[0] == clip[1]:
            return False
        unscaled = Pipeline(chain.filling, chain.reshaping, "none").column(column, clip)
        ordered = np.sort(self._train_rows(self._made(unscaled)))
        if not (np.isfinite(ordered).all() and ordered[0] < ordered[-1]):
            return False
        if chain.scaling == "robust":
            return bool(ordered[len(ordered) // 4] < ordered[3 * len(ordered) // 4])
        return True

    def _clip(self, name: str) -> tuple[float, float]:
        lower, upper = quantile_numbers(lambda: [self._present(name)], CLIPPED_SHARES)
        return lower, upper

    def _present(self, name: str) -> NDArray[np.float64]:
        present: NDArray[np.float64] = self._train_rows(self._numbers[name]).drop_null().to_numpy()
        return present

    def _train_rows(self, values: Any) -> Any:
        """The training rows of an array `[n]`, of numpy or pyarrow: nothing may be taken from others."""
        return values[: self._rows.train]
