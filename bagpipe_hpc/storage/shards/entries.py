"""What a manifest of shards lists: tables, features, shards and inputs. Standard library only."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from bagpipe_hpc.storage.checked_json import (
    OPTIONAL,
    Count,
    FieldError,
    FileInfo,
    FileName,
    Integer,
    Must,
    Positive,
    Sha256,
)

_INT32_ROWS = 1 << 31
"""Tables of up to this many rows have ids that fit int32."""


def id_dtype(most_rows: int) -> str:
    """Type of the stored ids where the largest table has that many rows: `int32`, or `int64` where one needs it."""
    return "int32" if most_rows <= _INT32_ROWS else "int64"


def shard_name(split: str, number: int) -> str:
    """Name of the file of a split's shard, by which shards come in their order."""
    return f"{split}-{number:05d}.h5"


@dataclass(frozen=True)
class TableInfo:
    """An embedding table.

    Attributes:
        name: name of the categorical column, such as `C1`, or a name of its own where several columns share the table.
        rows: number of ids; they are 0 .. rows - 1.
    """

    name: str
    rows: Positive


def is_stored_name(name: str) -> bool:
    """Whether a feature may have this name, which stands in HDF5 paths and in messages."""
    return name.isprintable() and name.strip(".") != "" and "/" not in name


ShownName = Annotated[str, Must(lambda name: name.isprintable() and name != "", "printable characters")]
StoredName = Annotated[str, Must(is_stored_name, "printable characters without a slash, not dots alone")]


TIMESTAMP, GROUP = "timestamp", "group"
"""Names of further columns that a layout may have, and of their datasets in the shards, int64."""
OtherName = Annotated[str, Must((TIMESTAMP, GROUP).__contains__, f"{TIMESTAMP} or {GROUP}")]


@dataclass(frozen=True)
class FeatureInfo:
    """A column of look-ups: the ids of a table that each sample has.

    Attributes:
        name: of the column.
        table: name of its table, which several features may share.
        ragged: whether a sample has any number of ids; otherwise it has exactly one.
        weighted: whether each id has a weight; of ragged features only.
        longest: most ids of one sample in either split.
    """

    name: StoredName
    table: str
    ragged: bool = False
    weighted: bool = False
    longest: Count = 1

    def __post_init__(self) -> None:
        if self.weighted and not self.ragged:
            raise FieldError("weighted", "is True of a feature that is not ragged")
        if not self.ragged and self.longest != 1:
            raise FieldError("longest", f"is {self.longest} instead of 1, as the feature is not ragged")


class DrawnFeature(FeatureInfo):
    """A feature whose ids no shard holds: every sample has `longest` of them, drawn from a graph."""


@dataclass(frozen=True)
class GraphInfo(FileInfo):
    """The file of a graph (`storage.graphs.graph_file`); the rows of the only table are its nodes.

    Attributes:
        edges: number of edges, one for each neighbour of a node.
    """

    edges: Positive


@dataclass(frozen=True)
class ShardInfo:
    """One HDF5 file of samples.

    Attributes:
        file: name in the shard directory.
        rows: number of samples.
        positives: samples whose (first) label is 1.
        bytes: size of the file.
        sha256: checksum of the file, 64 hexadecimal digits.
        more_positives: samples with 1 for each further label.
        values: ids of all samples together, for each ragged feature.
    """

    file: FileName
    rows: Positive
    positives: Count
    bytes: Positive
    sha256: Sha256
    more_positives: tuple[Count, ...] = field(default=(), metadata=OPTIONAL)
    values: tuple[Count, ...] = field(default=(), metadata=OPTIONAL)

    def __post_init__(self) -> None:
        for name, numbers in (("positives", (self.positives,)), ("more_positives", self.more_positives)):
            if max(numbers, default=0) > self.rows:
                raise FieldError(name, f"is {max(numbers)}, more than its {self.rows} rows")

    def to_json(self) -> dict[str, Any]:
        """The entry of a manifest; what is empty is left out."""
        return {name: value for name, value in asdict(self).items() if value != ()}


def is_recorded_name(name: str) -> bool:
    """Whether a file may have this name. It is for a record alone: what is opened must be a `FileName`."""
    return name != "" and "/" not in name and "\0" not in name


RecordedName = Annotated[str, Must(is_recorded_name, "the name of a file without its folder")]


@dataclass(frozen=True)
class InputInfo:
    """An input file as it was when it was prepared. No program opens it by this record.

    Attributes:
        file: name without its folder. It may hold control characters: show it with `terminal.printable`.
        bytes: size.
        modified_ns: time of the last change, nanoseconds since 1970.
    """

    file: RecordedName
    bytes: Count
    modified_ns: Integer
