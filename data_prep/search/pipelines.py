"""What may become of a dense column: how it is filled, reshaped and scaled, and the keys of a schema that say so."""

from dataclasses import dataclass
from itertools import product

from data_prep.schema.columns import NumericColumn

FILLINGS = ("constant", "mean", "median", "indicator")
"""What stands for a missing number: 0, the mean, the median; or `indicator`: 0, and a feature of its own is 1."""
RESHAPINGS = ("none", "log", "root", "quantiles", "clip")
SCALINGS = ("none", "standard", "min_max", "robust")
INTERVALS = 16
"""Of a column that is cut at quantiles."""
CLIPPED_SHARES = (0.01, 0.99)
"""A column that is clipped is so at these shares of its training rows."""
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
        """The column of a schema that goes through the chain, whatever was said of it before.

        Args:
            given: names the column and its kind of number.
            clip: smallest and largest number, where the chain clips.
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
"""All chains; a chain's number is its place here."""
PLAIN = PIPELINES.index(Pipeline("constant", "none", "none"))
"""The chain that leaves a column as it is."""


def indicator_of(given: NumericColumn) -> NumericColumn:
    """The derived column that says where a column is missing."""
    name = f"{given.name}{INDICATOR_ENDING}"
    return NumericColumn(name=name, source=given.name, integer=given.integer, is_missing=True)
