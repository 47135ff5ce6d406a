"""Frozen descriptions of raw text and of the rows in it. Standard library only.

A source format describes itself with what is named here: the kinds of columns (`formats.columns`) and a layout.
"""

import csv
import string
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.entries import GROUP, TIMESTAMP, is_stored_name
from data_prep.formats.columns import (
    Column,
    Dense,
    Group,
    Label,
    Sparse,
    SparseList,
    TableLimits,
    Time,
    Unused,
    Values,
    Weight,
    table_of,
)

__all__ = [
    "Dense",
    "Group",
    "Label",
    "RowLayout",
    "Sparse",
    "SparseList",
    "TableLimits",
    "TextLayout",
    "Time",
    "Unused",
    "Values",
    "Weight",
]
"""What a source format may be described with (docs/extending.md)."""


@dataclass(frozen=True)
class Table:
    """An embedding table.

    Attributes:
        name: its name.
        values: kind of its values.
        columns: names of the columns that look it up.
        limits: its limits, if it has its own.
    """

    name: str
    values: Values
    columns: tuple[str, ...]
    limits: TableLimits | None = None


@dataclass(frozen=True)
class IdRule:
    """Which values of a table get an id each, and what the others get.

    Attributes:
        min_count: fewest occurrences of a value that gets an id of its own, 1 or more.
        most_values: if more values than this would get one, all values of the table are hashed; None for no limit.
        hashed_rows: rows of the table if they are hashed, 2 or more.
    """

    min_count: int
    most_values: int | None
    hashed_rows: int


SEPARATORS = set(string.punctuation + "\t ") - set("\"'+-._\\")
"""Characters that may separate fields or values: none that a number or a quote consists of."""
_PARSED_NAMES = ("label", "dense", "weight")
_SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "blank"}


@dataclass(frozen=True)
class TextFields:
    """A text of one sample a line.

    Lines end with LF, CRLF or CR; empty lines are no rows and no errors. An empty field is a missing value.

    Attributes:
        columns: the columns of the text, in order.
        separator: the character between fields.
        header: whether the first line of each file names the columns, in this order.
        quoted: whether a field may stand in double quotes, and may then hold separators and doubled quotes. No field
            holds an end of line.
        missing: further texts, such as `NA`, that mean that a value is missing.

    Raises:
        ConfigError: text cannot be read with these columns or separators.
    """

    columns: tuple[Column, ...]
    separator: str = "\t"
    header: bool = False
    quoted: bool = False
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Each separator must be told from the others, and from what numbers hold."""
        cure = "use one character that no number holds, such as a tab or a comma"
        _require(self.separator in SEPARATORS, f"the separator is {self.separator!r}; {cure}")
        for column in self.columns:
            if not isinstance(column, SparseList):
                continue
            for what, found in (("separator", column.separator), ("weights", column.weights)):
                _require(
                    found is None or (found in SEPARATORS and found != self.separator),
                    f"{column.name}: {what} = {found!r}; {cure}, and that does not stand between fields",
                )
            same = column.weights == column.separator
            _require(not same, f"{column.name}: weights = {column.weights!r}, which stands between values already")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of the text."""
        return tuple(column.name for column in self.columns)

    @property
    def separator_name(self) -> str:
        """The separator's name in messages: `tab`, `comma` or the character itself."""
        return _SEPARATOR_NAMES.get(self.separator, self.separator)

    def is_header(self, line: str) -> bool:
        """Whether a line, given without its end, names the columns in their order."""
        return self.split(line) == list(self.names)

    def split(self, line: str) -> list[str]:
        """The fields of a line, given without its end; quotes are removed."""
        if self.quoted:
            return split_quoted(line, self.separator)
        return line.split(self.separator)


@dataclass(frozen=True)
class RowLayout:
    """What rows hold once they are parsed: labels, weights, dense features and values of tables.

    Attributes:
        columns: the columns, in order.

    Raises:
        ConfigError: there is nothing to train, or a name cannot be stored.
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        weights = [column.name for column in self.columns if isinstance(column, Weight)]
        _require(bool(self.labels), "no column is a label; give at least one")
        _require(len(weights) <= 1, f"{' and '.join(weights)} are weights of samples; give one at most")
        _require(bool(self.features), "no column is sparse; give at least one, which gets an embedding table")
        for column in self.dense:
            _require(
                column.log or not column.bucketed, f"{column.name} is bucketed without log; buckets are of integers"
            )
        for name, count in Counter(names).items():
            _require(name.isprintable() and name != "", f"a column is named {name!r}; use printable characters")
            _require(count == 1, f"two columns are named {name!r}; give each its own name")
        parsed = (*(_PARSED_NAMES if weights else _PARSED_NAMES[:2]), *self.others)
        for kind in (Time, Group):
            _require(sum(isinstance(column, kind) for column in self.columns) <= 1, f"give one {kind.__name__} at most")
        for what, name in (
            *(("table", table.name) for table in self.tables),
            *(("sparse column", column.name) for column in self.features),
        ):
            usable = name not in parsed and is_stored_name(name)
            _require(
                usable, f"a {what} is named {name!r}; use another name than {' and '.join(parsed)}, without a slash"
            )
        tables = {table.name: table for table in self.tables}
        for user in self.features:
            table = tables[table_of(user)]
            if (user.values, user.limits) != (table.values, table.limits):
                wanted = "them equal values" if user.values != table.values else "it equal limits"
                _require(False, f"{' and '.join(table.columns)} share table {table.name}; give {wanted}")
        hashed = sum(table.limits.hash_rows or 0 for table in self.tables if table.limits)
        most = "use fewer than 2 ** 63, which number the rows of all tables"
        _require(hashed < 1 << 63, f"hash_rows of all tables add up to {hashed}; {most}")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the K columns of labels, 1 or more."""
        return tuple(column.name for column in self.columns if isinstance(column, Label))

    @cached_property
    def weight(self) -> str | None:
        """Name of the column of the samples' weights; None where they have none."""
        return next((column.name for column in self.columns if isinstance(column, Weight)), None)

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Further int64 columns of rows: `TIMESTAMP` and `GROUP`, where the text has them."""
        kinds = {type(column) for column in self.columns}
        return tuple(name for name, kind in ((TIMESTAMP, Time), (GROUP, Group)) if kind in kinds)

    @cached_property
    def dense(self) -> tuple[Dense, ...]:
        """The N dense features; there may be none."""
        return tuple(column for column in self.columns if isinstance(column, Dense))

    @cached_property
    def sparse(self) -> tuple[Sparse, ...]:
        """The categorical columns with one value a sample; there may be none."""
        return tuple(column for column in self.features if isinstance(column, Sparse))

    @cached_property
    def lists(self) -> tuple[SparseList, ...]:
        """The categorical columns with any number of values; there may be none."""
        return tuple(column for column in self.features if isinstance(column, SparseList))

    @cached_property
    def features(self) -> tuple[Sparse | SparseList, ...]:
        """All categorical columns in the order of the text, 1 or more, including the buckets of dense ones."""
        both = (
            Sparse(column.name, Values.BUCKET) if isinstance(column, Dense) and column.bucketed else column
            for column in self.columns
        )
        return tuple(column for column in both if isinstance(column, Sparse | SparseList))

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order of the first columns that look them up."""
        columns: dict[str, list[Sparse | SparseList]] = {}
        for column in self.features:
            columns.setdefault(table_of(column), []).append(column)
        return tuple(
            Table(name, users[0].values, tuple(column.name for column in users), users[0].limits)
            for name, users in columns.items()
        )

    @property
    def is_plain(self) -> bool:
        """Whether each categorical column has one value a sample and a table of its own name."""
        return not self.lists and all(column.table in (None, column.name) for column in self.sparse)

    @property
    def dense_rule(self) -> str:
        """How dense fields become features, in words for the manifest."""
        logs = [column.name for column in self.dense if column.log]
        if len(logs) == len(self.dense):
            return "log(1 + max(x, 0)); 0 missing" if logs else "none"
        return f"log(1 + max(x, 0)) of {', '.join(logs)}; x of others; 0 missing" if logs else "x; 0 missing"

    def words(self) -> tuple[str, ...]:
        """The whole description, a line for each column and more for the rest; equal layouts have equal words."""
        return tuple(str(column) for column in self.columns)


@dataclass(frozen=True)
class TextLayout(TextFields, RowLayout):
    """A text whose fields hold what its rows hold: a complete description of a format of lines and fields."""

    def __post_init__(self) -> None:
        RowLayout.__post_init__(self)
        TextFields.__post_init__(self)

    def words(self) -> tuple[str, ...]:
        """The whole description, a line for each column and one for the rest; equal layouts have equal words."""
        rest = f"separator={self.separator!r}, header={self.header}, quoted={self.quoted}, missing={self.missing}"
        return (*super().words(), rest)


def split_quoted(line: str, separator: str) -> list[str]:
    """The fields of a line of any length, given without its end; quotes are removed."""
    if len(line) > csv.field_size_limit():  # a limit of the whole process; to raise it harms no other reader
        csv.field_size_limit(len(line))
    return next(csv.reader([line], delimiter=separator), [])


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ConfigError(f"source format: {problem}")
