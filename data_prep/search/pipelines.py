"""How a dense column may be transformed: filled, reshaped and scaled, and the keys of a schema that say so."""

from dataclasses import dataclass
from itertools import product

from data_prep.schema.columns import NumericColumn

FILLINGS = ("constant", "mean", "median", "indicator")
"""What replaces a missing number: 0, the mean, the median; `indicator` is 0, and a further feature that is 1."""
RESHAPINGS = ("none", "log", "root", "quantiles", "clip")
SCALINGS = ("none", "standard", "min_max", "robust")
INTERVALS = 16
"""Intervals of a column that is cut at quantiles."""
CLIPPED_SHARES = (0.01, 0.99)
"""A column is clipped at these quantiles of its training rows."""
INDICATOR_ENDING = "_is_missing"


@dataclass(frozen=True)
class Pipeline:
    """A chain of three steps.

    Attributes:
        filling: one of `FILLINGS`.
        reshaping: one of `RESHAPINGS`.
        scaling: one of `SCALINGS`.
    """

    filling: str
    reshaping: str
    scaling: str

    def __str__(self) -> str:
        """The steps in their order."""
        return f"{self.filling} > {self.reshaping} > {self.scaling}"

    def column(self, given: NumericColumn, clip: tuple[float, float]) -> NumericColumn:
        """The schema's column with this chain, in place of any transforms that it had.

        Args:
            given: the column; only its name and its kind of number are kept.
            clip: smallest and largest number, if the chain clips.
        """
        return NumericColumn(
            name=given.name,
            source=given.source,
            integer=given.integer,
            missing=None if self.filling in ("mean", "median") else 0.0,
            fill=self.filling if self.filling in ("mean", "median") else None,
            clip=clip if self.reshaping == "clip" else None,
            log=self.reshaping == "log",
            root=self.reshaping == "root",
            quantiles=INTERVALS if self.reshaping == "quantiles" else None,
            standardise=self.scaling == "standard",
            scale=self.scaling if self.scaling in ("min_max", "robust") else None,
        )


PIPELINES = tuple(Pipeline(*steps) for steps in product(FILLINGS, RESHAPINGS, SCALINGS))
"""All chains; a chain's number is its index here."""
PLAIN = PIPELINES.index(Pipeline("constant", "none", "none"))
"""The chain that leaves a column as it is."""


def indicator_of(given: NumericColumn) -> NumericColumn:
    """The derived column that says where a column is missing."""
    name = f"{given.name}{INDICATOR_ENDING}"
    return NumericColumn(name=name, source=given.name, integer=given.integer, is_missing=True)
