"""The kinds of columns that a schema may have, as frozen descriptions. Standard library only.

A field of a class is a key of the schema; `from` is the key of `source`. Each class checks its own values.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

PARTS = ("hour", "weekday", "day", "month")
"""The parts of a time, in UTC, that may be categories; weekday 0 is Monday."""
FILLS = ("mean", "median")
"""Statistics of the training rows that may stand for a missing number."""
SCALES = ("min_max", "robust")
"""How numbers may be scaled, besides `standardise`."""
_TEXTS = ("text", "integer", "hex", "decimal")
_MOST_QUANTILES = 1 << 8
FLOAT32_LIMIT = (2 - 2.0**-24) * 2.0**127
"""From here on, float32 rounds a number to infinity."""


@dataclass(frozen=True, kw_only=True)
class LabelColumn:
    """`kind = "label"`: what is to be predicted, 0 or 1.

    Attributes:
        name: of the column.
        positive: the texts that mean label 1; any other text means 0. In Parquet they also stand for the number or the
            boolean that they are.
        at_least: the label is 1 where the number in the field is this number or more.
    """

    name: str
    positive: tuple[str, ...] = ()
    at_least: float | None = None

    def __post_init__(self) -> None:
        both = bool(self.positive) and self.at_least is not None
        _require(
            "at_least", not both, (self.at_least, "leave it out, or positive: words tell a label, or a number does")
        )


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """`kind = "numeric"`: a dense feature. It is filled, clipped, reshaped (`log`, `root`, `quantiles`), then scaled.

    Attributes:
        name: name of the column.
        source: name of the numeric column that it is made of; None: it is itself a column of the files.
        integer: the field is a whole number of 64 bits; otherwise a decimal number.
        missing: number that replaces a missing one, and that the field could hold; None: the feature is 0 then,
            whatever its transforms.
        clip: smallest and largest number; others become the nearer of the two.
        log: log(1 + max(x, 0)).
        standardise: (x - mean) / deviation, over the training rows that have a number.
        fill: a missing number becomes the `mean` or the `median` of the training rows that have one.
        root: the square root of |x| with the sign of x.
        quantiles: cut the numbers into so many intervals with about the same share of the training rows; the feature is
            the number of the interval, from 0.
        scale: `min_max`: (x - least) / (most - least); `robust`: (x - median) / (upper quartile - lower quartile); all
            over the training rows that have a number.
        is_missing: the feature is 1 where the number is missing, and 0 elsewhere.
    """

    name: str
    source: str | None = None
    integer: bool = False
    missing: float | None = None
    clip: tuple[float, float] | None = None
    log: bool = False
    standardise: bool = False
    fill: str | None = None
    root: bool = False
    quantiles: int | None = None
    scale: str | None = None
    is_missing: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None:
            _require("clip", self.clip[0] < self.clip[1], (list(self.clip), "give the smaller number first"))
            within = self.clip[0] < FLOAT32_LIMIT and self.clip[1] > -FLOAT32_LIMIT  # a bound beyond float32 clips none
            cure = f"use bounds between which float32 has numbers, below {FLOAT32_LIMIT:.2g}"
            _require("clip", within, (list(self.clip), cure))
        if self.missing is not None and self.integer:
            fits = self.missing.is_integer() and -(2.0**63) <= self.missing < 2.0**63
            _require("missing", fits, (self.missing, "use a whole number of 64 bits, or leave integer out"))
        elif self.missing is not None:
            cure = f"use a number that float32 holds, below {FLOAT32_LIMIT:.2g}, as the field does"
            _require("missing", abs(self.missing) < FLOAT32_LIMIT, (self.missing, cure))
        if self.fill is not None:
            _one_of("fill", self.fill, FILLS)
        if self.scale is not None:
            _one_of("scale", self.scale, SCALES)
        _in_range("quantiles", self.quantiles, 2, _MOST_QUANTILES)
        self._one_at_most("a number is filled in one way", missing=self.missing is not None, fill=bool(self.fill))
        shapes = {"log": self.log, "root": self.root, "quantiles": self.quantiles is not None}
        self._one_at_most("a number is reshaped in one way", **shapes)
        self._one_at_most("a number is scaled in one way", standardise=self.standardise, scale=bool(self.scale))
        if self.is_missing:
            for key in ("missing", "clip", "log", "standardise", "fill", "root", "quantiles", "scale"):
                value = getattr(self, key)
                _require(key, value is None or value is False, (value, "leave it out, or is_missing, which is 0 or 1"))

    def _one_at_most(self, why: str, **given: bool) -> None:
        keys = [key for key, is_given in given.items() if is_given]
        if len(keys) > 1:
            raise SettingError(keys[1], getattr(self, keys[1]), f"leave it out, or {keys[0]}: {why}")

    @property
    def is_fitted(self) -> bool:
        """Whether it depends on anything in the training rows."""
        return self.standardise or any(given is not None for given in (self.fill, self.quantiles, self.scale))


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """The keys of all columns that look up an embedding table.

    Attributes:
        name: name of the column.
        table: name of the table, which columns with values of the same kind may share; by default the column's name.
        min_count: training rows in which a value must occur to get an id of its own; None: as the command says.
        max_rows: hash the values to this many ids if an id for each would take more; None: as the command says.
        hash_rows: hash the values to this many ids, however few values there are; None: they have a vocabulary.
    """

    name: str
    table: str | None = None
    min_count: int | None = None
    max_rows: int | None = None
    hash_rows: int | None = None

    def __post_init__(self) -> None:
        _in_range("min_count", self.min_count, 1, 1 << 32)
        for key, rows in (("max_rows", self.max_rows), ("hash_rows", self.hash_rows)):
            _in_range(key, rows, 2, 1 << 63)
        given = [key for key in ("min_count", "max_rows", "hash_rows") if getattr(self, key) is not None]
        if len(given) > 1:
            raise SettingError(given[1], getattr(self, given[1]), f"leave it out, or {given[0]}: a table has one rule")


@dataclass(frozen=True, kw_only=True)
class CategoricalColumn(TableColumn):
    """`kind = "categorical"`: one value, which has an id.

    Attributes:
        source: name of the column that it is made of; None: it is itself a column of the files, or a cross.
        cross: names of two categorical columns, whose pair of values is the value.
        values: what a field holds: `text`, `integer` (64 bits), `hex` (1 to 8 digits), or `decimal`, to be put into
            intervals.
        missing: text that replaces a missing field; None: a missing value has id 0.
        modulo: the value is the remainder of the number divided by this.
        bucketise: ascending numbers; the value is how many of them are at most x.
        quantiles: put the numbers into this many intervals, each with about the same share of the training rows.
        part: the value is this part of a time, one of `PARTS`.
    """

    source: str | None = None
    cross: tuple[str, ...] = ()
    values: str = "text"
    missing: str | None = None
    modulo: int | None = None
    bucketise: tuple[float, ...] = ()
    quantiles: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("values", self.values, _TEXTS)
        _in_range("modulo", self.modulo, 1, 1 << 32)
        _in_range("quantiles", self.quantiles, 2, _MOST_QUANTILES)
        if self.part is not None:
            _one_of("part", self.part, PARTS)
        ascending = all(math.isfinite(bound) for bound in self.bucketise) and all(
            low < high for low, high in zip(self.bucketise, self.bucketise[1:], strict=False)
        )
        _require("bucketise", ascending, (list(self.bucketise), "give ascending numbers, such as [18, 25, 40]"))
        if self.cross:
            _require("cross", len(self.cross) == 2, (list(self.cross), "name two categorical columns"))
        own = [key for key in ("cross", "modulo", "bucketise", "quantiles", "part") if getattr(self, key)]
        if len(own) > 1:
            raise SettingError(own[1], getattr(self, own[1]), f"leave it out, or {own[0]}: a value is made in one way")
        if self.cross and self.source is not None:
            raise SettingError("from", self.source, "leave it out: cross names the columns")

    @property
    def in_intervals(self) -> bool:
        """Whether its values are intervals of numbers."""
        return bool(self.bucketise) or self.quantiles is not None


@dataclass(frozen=True, kw_only=True)
class MultiHotColumn(TableColumn):
    """`kind = "multi_hot"`: any number of values, a bag; an empty field is an empty bag.

    Attributes:
        values: what each value is: `text`, `integer` or `hex`.
        separator: the character between values; not used for columns of lists in Parquet.
        weights: the character between a value and its weight, such as `:` in `12:0.5|7:2`; None: values have no weight.
    """

    values: str = "text"
    separator: str = "|"
    weights: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("values", self.values, _TEXTS[:-1])


@dataclass(frozen=True, kw_only=True)
class SequenceColumn(MultiHotColumn):
    """`kind = "sequence"`: values in order, oldest first, such as what a user saw before.

    Attributes:
        longest: keep at most this many values, the newest, which are the last ones; None keeps all.
    """

    longest: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _in_range("longest", self.longest, 1, 1 << 31)


@dataclass(frozen=True, kw_only=True)
class WeightColumn:
    """`kind = "sample_weight"`: how much a sample counts in the loss, a number of 0 or more."""

    name: str


@dataclass(frozen=True, kw_only=True)
class TimestampColumn:
    """`kind = "timestamp"`: when a row happened, kept in the shards as seconds since 1970 (UTC).

    Attributes:
        name: name of the column.
        format: how times are written: `seconds` or `milliseconds` since 1970, or a pattern of strptime such as
            `%Y-%m-%d %H:%M:%S`. `%z` reads an offset from UTC; names of zones (`%Z`) are not read.
    """

    name: str
    format: str = "seconds"

    def __post_init__(self) -> None:
        written = self.format in ("seconds", "milliseconds") or "%" in self.format
        cure = "use seconds, milliseconds, or a pattern such as %Y-%m-%d %H:%M:%S"
        _require("format", written, (self.format, cure))
        named = "Z" in re.findall("%(.)", self.format)
        _require("format", not named, (self.format, "a zone's name does not tell the time; write offsets from UTC, %z"))


@dataclass(frozen=True, kw_only=True)
class GroupColumn:
    """`kind = "group"`: which rows belong together, such as those of a user or a query, kept in the shards as int64.

    Attributes:
        name: name of the column.
        values: `integer`, kept as it is, or `text`, of which a hash of 64 bits is kept.
    """

    name: str
    values: str = "integer"

    def __post_init__(self) -> None:
        _one_of("values", self.values, ("integer", "text"))


@dataclass(frozen=True, kw_only=True)
class UnusedColumn:
    """`kind = "unused"`: a column of the files that is ignored."""

    name: str


SchemaColumn = (
    LabelColumn
    | NumericColumn
    | CategoricalColumn
    | MultiHotColumn
    | SequenceColumn
    | WeightColumn
    | TimestampColumn
    | GroupColumn
    | UnusedColumn
)

KINDS: dict[str, type[SchemaColumn]] = {
    "label": LabelColumn,
    "numeric": NumericColumn,
    "categorical": CategoricalColumn,
    "multi_hot": MultiHotColumn,
    "sequence": SequenceColumn,
    "sample_weight": WeightColumn,
    "timestamp": TimestampColumn,
    "group": GroupColumn,
    "unused": UnusedColumn,
}


def _require(key: str, holds: bool, value_and_cure: tuple[object, str]) -> None:
    if not holds:
        raise SettingError(key, *value_and_cure)


def _one_of(key: str, value: str, possible: Sequence[str]) -> None:
    _require(key, value in possible, (value, f"use one of {', '.join(possible)}"))


def _in_range(key: str, value: int | None, first: int, last: int) -> None:
    if value is not None and not first <= value < last:
        raise SettingError(key, value, f"use {first} or more, less than 2 ** {last.bit_length() - 1}")
