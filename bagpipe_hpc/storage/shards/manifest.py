"""What a shard directory holds: a `manifest.json` that is written last, so that its presence means complete.

Standard library only. A manifest is read as if a stranger had written it: every type, range and file name is checked.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from bagpipe_hpc.errors import DataError, FileError, read_small
from bagpipe_hpc.storage.atomic_write import atomic_write
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
    read_json,
)

SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
_MOST_BYTES = 256 << 20
"""Of a manifest, far more than one has: it lists a file a shard."""
UNFINISHED_NAME = "preparation.json"
"""The file that a preparation keeps its progress in until the manifest is there."""
PREPARE_AGAIN = "run bagpipe prepare again into a new folder"
SPLITS = ("train", "test")
SPARSE_INT32_ROWS = 1 << 31
"""Tables of up to this many rows have ids that fit int32."""


@dataclass(frozen=True)
class TableInfo:
    """An embedding table.

    Attributes:
        name: name of the categorical column, such as `C1`.
        rows: number of ids; they are 0 .. rows - 1.
    """

    name: str
    rows: Positive


@dataclass(frozen=True)
class ShardInfo:
    """One HDF5 file of samples.

    Attributes:
        file: name in the shard directory.
        rows: number of samples.
        positives: samples with label 1.
        bytes: size of the file.
        sha256: checksum of the file, 64 hexadecimal digits.
    """

    file: FileName
    rows: Positive
    positives: Count
    bytes: Positive
    sha256: Sha256

    def __post_init__(self) -> None:
        if self.positives > self.rows:
            raise FieldError("positives", f"is {self.positives}, more than its {self.rows} rows")


@dataclass(frozen=True)
class InputInfo:
    """An input file as it was when it was prepared.

    Attributes:
        file: name without its folder.
        bytes: size.
        modified_ns: time of the last change, nanoseconds since 1970.
    """

    file: FileName
    bytes: Count
    modified_ns: Integer


@dataclass(frozen=True)
class ShardManifest:
    """Everything that is known of prepared clicks.

    Attributes:
        schema_version: version of this format.
        source_format: format of the input, such as `criteo`.
        dense_features: number of dense features of a sample.
        tables: the embedding tables in the order of the columns of `sparse`.
        train: shards of the training samples, in time order.
        test: shards of the test samples, later than all of `train`.
        inputs: the input files, in the order in which they were read.
        settings: the settings of the preparation.
        skipped_rows: malformed rows that were left out, as `FILE:LINE: REASON`.
        vocabularies: the file that says which value has which id (`vocabulary_file`); None where all ids are hashed.
        hashed_tables: tables whose values are hashed to their ids, while the others have vocabularies.
    """

    schema_version: int
    source_format: str
    dense_features: int
    tables: tuple[TableInfo, ...]
    train: tuple[ShardInfo, ...]
    test: tuple[ShardInfo, ...]
    inputs: tuple[InputInfo, ...] = ()
    settings: Mapping[str, Any] | None = None
    skipped_rows: tuple[str, ...] = ()
    vocabularies: FileInfo | None = None
    hashed_tables: tuple[str, ...] = ()

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Number of ids of each table."""
        return tuple(table.rows for table in self.tables)

    @property
    def sparse_dtype(self) -> str:
        """Type of the stored ids: `int32`, or `int64` where a table needs it."""
        return "int32" if max(self.table_rows, default=0) <= SPARSE_INT32_ROWS else "int64"

    @property
    def label_rate(self) -> float:
        """Share of samples of both splits with label 1; 0 where there are none."""
        shards = self.train + self.test
        return sum(shard.positives for shard in shards) / max(1, sum(shard.rows for shard in shards))

    def shards(self, split: str) -> tuple[ShardInfo, ...]:
        """Shards of `train` or `test`."""
        if split not in SPLITS:
            raise ValueError(f"split is {split!r} instead of one of {', '.join(SPLITS)}")
        return self.train if split == "train" else self.test

    def rows(self, split: str) -> int:
        """Number of samples of `train` or `test`."""
        return sum(shard.rows for shard in self.shards(split))

    def digest(self, split: str) -> str:
        """SHA-256 over the shards of a split in their order, by rows and checksum; their names do not matter.

        Returns:
            64 hexadecimal digits.
        """
        lines = (f"{shard.rows} {shard.sha256}\n" for shard in self.shards(split))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of `manifest.json`; equal manifests give equal text."""
        fields = {
            "schema_version": self.schema_version,
            "source_format": self.source_format,
            "rows": {split: self.rows(split) for split in SPLITS},
            "label_rate": self.label_rate,
            "dense_features": self.dense_features,
            "tables": [vars(table) for table in self.tables],
            "shards": {split: [vars(shard) for shard in self.shards(split)] for split in SPLITS},
            "inputs": [vars(source) for source in self.inputs],
            "settings": dict(self.settings or {}),
            "skipped_rows": list(self.skipped_rows),
        }
        if self.vocabularies is not None:
            fields["vocabularies"] = vars(self.vocabularies)
        if self.hashed_tables:
            fields["hashed_tables"] = list(self.hashed_tables)
        return json.dumps(fields, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, source: Path = Path(MANIFEST_NAME)) -> "ShardManifest":
        """Read the text of a manifest.

        Args:
            text: JSON.
            source: file that it came from, for messages.

        Raises:
            DataError: a field is missing, unknown, of the wrong type, out of range or contradicts another.
        """
        return read_json(_Document, text, source).manifest


@dataclass(frozen=True)
class _Rows:
    train: Count
    test: Count


@dataclass(frozen=True)
class _Shards:
    train: tuple[ShardInfo, ...]
    test: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class _Document:
    """The text of `manifest.json`, which says some things twice for its readers' sake."""

    schema_version: Annotated[int, Must(SCHEMA_VERSION.__eq__, f"{SCHEMA_VERSION}, which this program reads")]
    source_format: str
    rows: _Rows
    label_rate: float
    dense_features: Count
    tables: tuple[TableInfo, ...]
    shards: _Shards
    inputs: tuple[InputInfo, ...]
    settings: dict[str, Any]
    skipped_rows: tuple[str, ...]
    vocabularies: FileInfo | None = field(default=None, metadata=OPTIONAL)
    hashed_tables: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    @property
    def manifest(self) -> ShardManifest:
        """What the text says."""
        return ShardManifest(
            schema_version=self.schema_version,
            source_format=self.source_format,
            dense_features=self.dense_features,
            tables=self.tables,
            train=self.shards.train,
            test=self.shards.test,
            inputs=self.inputs,
            settings=self.settings,
            skipped_rows=self.skipped_rows,
            vocabularies=self.vocabularies,
            hashed_tables=self.hashed_tables,
        )

    def __post_init__(self) -> None:
        manifest = self.manifest
        for split, rows in (("train", self.rows.train), ("test", self.rows.test)):
            if rows != manifest.rows(split):
                raise FieldError(f"rows.{split}", f"is {rows}, not the sum of its shards' rows, {manifest.rows(split)}")
        if self.label_rate != manifest.label_rate:
            raise FieldError("label_rate", f"is {self.label_rate}, not that of the shards, {manifest.label_rate}")
        for name, numbers in (("tables", manifest.table_rows), ("rows", (self.rows.train, self.rows.test))):
            if sum(numbers) >= 1 << 63:
                raise FieldError(name, f"adds up to {sum(numbers)} rows, which is no 64-bit number")
        files = [shard.file for shard in manifest.train + manifest.test]
        files += [self.vocabularies.file] if self.vocabularies else []
        if len(set(files)) != len(files):
            raise FieldError("shards", "names a file twice")
        if not self.tables:
            raise FieldError("tables", "names none")
        names = {table.name for table in self.tables}
        for name, listed in (("tables", [table.name for table in self.tables]), ("hashed_tables", self.hashed_tables)):
            for table in (table for table, count in Counter(listed).items() if count > 1 or table not in names):
                raise FieldError(name, f"names {table!r:.80}{' twice' if table in names else ', no table'}")


def load_manifest(directory: Path) -> ShardManifest:
    """Read the manifest of a shard directory.

    Raises:
        DataError: there is none, the preparation is not finished, or the manifest is malformed.
    """
    path = directory / MANIFEST_NAME
    try:
        if not path.is_file():
            if (directory / UNFINISHED_NAME).is_file():
                raise DataError(f"{directory}: the preparation is not finished; run bagpipe prepare again to resume")
            raise DataError(f"{directory}: no {MANIFEST_NAME} here; name a folder that bagpipe prepare has written")
        text = read_small(path, _MOST_BYTES)
    except FileError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); check the permissions of it and its folder"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is no UTF-8 text ({error}); {PREPARE_AGAIN}") from error
    return ShardManifest.from_json(text, path)


def save_manifest(directory: Path, manifest: ShardManifest) -> None:
    """Write `manifest.json`, whole or not at all."""
    with atomic_write(directory / MANIFEST_NAME) as partial:
        partial.write_text(manifest.to_json(), encoding="utf-8")
