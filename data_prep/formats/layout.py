"""What the raw text of a source format looks like, as one frozen description. Standard library only."""

import csv
import string
from dataclasses import dataclass
from enum import StrEnum

from bagpipe_hpc.errors import ConfigError


class Values(StrEnum):
    """What the values of a sparse column are; two fields with equal values get the same id."""

    HEX = "hex"
    """1 to 8 hexadecimal digits in either case, as an unsigned integer of 32 bits. Native code counts these."""
    INTEGER = "integer"
    """Decimal integers of 64 bits, `-` allowed; 7 and 07 are one value."""
    TEXT = "text"
    """Any UTF-8 text without a zero byte, as it stands in the field."""


@dataclass(frozen=True)
class Label:
    """The column of labels: `0` or `1`, one digit. A layout has exactly one."""

    name: str


@dataclass(frozen=True)
class Dense:
    """A dense feature, float32; a missing one is 0.

    Attributes:
        name: of the column.
        log: the field is a decimal integer x of 64 bits, and the feature is log(1 + max(x, 0)). Otherwise the field is
            a decimal number, and the feature is that number; one that is too large for float32 is refused.
    """

    name: str
    log: bool = False


@dataclass(frozen=True)
class Sparse:
    """A categorical column, which has an embedding table of its name; a missing value has id 0.

    Attributes:
        name: of the column, and of the table.
        values: what its values are.
    """

    name: str
    values: Values = Values.TEXT


@dataclass(frozen=True)
class Unused:
    """A column that is passed over, whatever it holds."""

    name: str


Column = Label | Dense | Sparse | Unused

_SEPARATORS = set(string.punctuation + "\t ") - set("\"'+-._\\")
_PARSED_NAMES = ("label", "dense")
_SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "blank"}


@dataclass(frozen=True)
class TextLayout:
    """A text of one sample a line.

    Lines end with LF, CRLF or CR; empty lines are no rows and no errors. An empty field is a missing value.

    Attributes:
        columns: the columns of the text, in order.
        separator: the character between fields.
        header: whether the first line of each file names the columns, in this order.
        quoted: whether a field may stand in double quotes, and may then hold separators and, doubled, quotes. Ends of
            line belong to no field.

    Raises:
        ConfigError: columns or separator are none that text could be read with.
    """

    columns: tuple[Column, ...]
    separator: str = "\t"
    header: bool = False
    quoted: bool = False

    def __post_init__(self) -> None:
        names = self.names
        labels = sum(isinstance(column, Label) for column in self.columns)
        _require(labels == 1, f"{labels} of the columns are labels; give exactly one")
        _require(bool(self.sparse), "no column is sparse; give at least one, which gets an embedding table")
        for name in names:
            _require(name.isprintable() and name != "", f"a column is named {name!r}; use printable characters")
            _require(names.count(name) == 1, f"two columns are named {name!r}; give each its own name")
        for name in self.tables:
            usable = name not in _PARSED_NAMES and "/" not in name and name.strip(".") != ""
            _require(usable, f"a table is named {name!r}; use another name than label and dense, without a slash")
        _require(
            self.separator in _SEPARATORS,
            f"the separator is {self.separator!r}; use one character that no number holds, such as a tab or a comma",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of the text."""
        return tuple(column.name for column in self.columns)

    @property
    def label(self) -> str:
        """Name of the column of labels."""
        return next(column.name for column in self.columns if isinstance(column, Label))

    @property
    def dense(self) -> tuple[Dense, ...]:
        """The N dense features; there may be none."""
        return tuple(column for column in self.columns if isinstance(column, Dense))

    @property
    def sparse(self) -> tuple[Sparse, ...]:
        """The F categorical columns, 1 or more."""
        return tuple(column for column in self.columns if isinstance(column, Sparse))

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the F tables."""
        return tuple(column.name for column in self.sparse)

    @property
    def dense_rule(self) -> str:
        """What becomes of a dense field, in words for the manifest."""
        logs = [column.name for column in self.dense if column.log]
        if len(logs) == len(self.dense):
            return "log(1 + max(x, 0)); 0 missing" if logs else "none"
        return f"log(1 + max(x, 0)) of {', '.join(logs)}; x of others; 0 missing" if logs else "x; 0 missing"

    @property
    def separator_name(self) -> str:
        """What the separator is called in messages: `tab`, `comma` or the character itself."""
        return _SEPARATOR_NAMES.get(self.separator, self.separator)

    def words(self) -> tuple[str, ...]:
        """The whole description, a line for each column and one for the rest; equal layouts have equal words."""
        rest = f"separator={self.separator!r}, header={self.header}, quoted={self.quoted}"
        return (*(str(column) for column in self.columns), rest)

    def is_header(self, line: str) -> bool:
        """Whether a line, without its end, names the columns in their order."""
        if self.quoted:
            return next(csv.reader([line], delimiter=self.separator), []) == list(self.names)
        return line.split(self.separator) == list(self.names)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ConfigError(f"source format: {problem}")
