"""The kinds of columns that a text or its rows may have, as frozen descriptions. Standard library only."""

from dataclasses import dataclass
from enum import StrEnum


class Values(StrEnum):
    """What the values of a sparse column are; two fields with equal values get the same id."""

    HEX = "hex"
    """1 to 8 hexadecimal digits in either case, as an unsigned integer of 32 bits."""
    INTEGER = "integer"
    """Decimal integers of 64 bits, `-` allowed; 7 and 07 are one value."""
    BUCKET = "bucket"
    """As `INTEGER`, but integers of about the same size are one value: their bucket (`formats.buckets`), of 32 bits."""
    NUMBER = "number"
    """Integers of 0 or more, below 2 ** 32, that a format computes: the interval that a number lies in, an hour."""
    TEXT = "text"
    """Any UTF-8 text without a zero byte, as it stands in the field."""

    @property
    def is_32_bit(self) -> bool:
        """Whether values are unsigned integers of 32 bits, which native code counts; other values are wider."""
        return self in (Values.HEX, Values.BUCKET, Values.NUMBER)


@dataclass(frozen=True)
class Label:
    """A column of labels. A layout has one or more.

    Attributes:
        name: of the column.
        positive: the texts that mean label 1; any other text means 0, an empty one is missing. If not given, a label is
            `0` or `1`.
        at_least: labels are decimal numbers; those of this size or more mean 1, others 0. None where they are not.
    """

    name: str
    positive: tuple[str, ...] = ()
    at_least: float | None = None


@dataclass(frozen=True)
class Weight:
    """A column of samples' weights: decimal numbers, 0 or more, finite as float32. A layout has at most one."""

    name: str


@dataclass(frozen=True)
class TableLimits:
    """A table's own limits, in place of those that the command gives for all tables. At most one of them is given.

    Attributes:
        min_count: training rows in which a value must occur to get an id of its own.
        max_rows: hash the values to this many ids if an id for each value would take more.
        hash_rows: hash the values to this many ids, however few values there are.
    """

    min_count: int | None = None
    max_rows: int | None = None
    hash_rows: int | None = None


@dataclass(frozen=True)
class Dense:
    """A dense feature, float32; a missing one is 0.

    Attributes:
        name: of the column.
        log: the field is a decimal integer x of 64 bits, and the feature is log(1 + max(x, 0)). Otherwise the field is
            a decimal number, and the feature is that number; one that is too large for float32 is refused.
        bucketed: with `log`, the column is a categorical one as well, `Sparse(name, Values.BUCKET)`.
    """

    name: str
    log: bool = False
    bucketed: bool = False


@dataclass(frozen=True)
class Sparse:
    """A categorical column: one value, which is looked up in an embedding table; a missing value has id 0.

    Attributes:
        name: name of the column.
        values: kind of its values.
        table: name of the table, which columns with values of the same kind may share; by default the column's name.
        limits: limits of the table, if it has its own; columns that share it must have equal ones.
    """

    name: str
    values: Values = Values.TEXT
    table: str | None = None
    limits: TableLimits | None = None


@dataclass(frozen=True)
class SparseList:
    """A categorical column of any number of values in one field, oldest first; an empty field holds none.

    Attributes:
        name: name of the column.
        values: kind of its values.
        separator: the character between values.
        table: name of the table, which columns with values of the same kind may share; by default the column's name.
        weights: the character between a value and its weight, such as `:` in `12:0.5|7:2`; None where values have no
            weights. A weight is a decimal number that is finite as float32. All values of the column have one, or none
            has.
        limits: limits of the table, if it has its own; columns that share it must have equal ones.
    """

    name: str
    values: Values = Values.TEXT
    separator: str = "|"
    table: str | None = None
    weights: str | None = None
    limits: TableLimits | None = None


@dataclass(frozen=True)
class Time:
    """A column of times, kept as seconds since 1970 (UTC), int64. A layout has one at most.

    Attributes:
        name: of the column.
        written: how times are written: `seconds` or `milliseconds` since 1970 as a decimal integer, or a pattern of
            `strptime`.
    """

    name: str
    written: str = "seconds"


@dataclass(frozen=True)
class Group:
    """A column that says which rows belong together, kept as int64. A layout has one at most.

    Attributes:
        name: of the column.
        values: `INTEGER`, kept as it is, or `TEXT`, of which a 64-bit BLAKE2b hash is kept.
    """

    name: str
    values: Values = Values.INTEGER


@dataclass(frozen=True)
class Unused:
    """A column that is passed over, whatever it holds."""

    name: str


Column = Label | Weight | Dense | Sparse | SparseList | Time | Group | Unused


def table_of(column: Sparse | SparseList) -> str:
    """Name of the table that a column looks up."""
    return column.name if column.table is None else column.table
