"""What a shard directory holds: a `manifest.json` that is written last, so that its presence means complete.

Standard library only. A manifest is read as if a stranger had written it: every type, range and file name is checked.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.checked_json import (
    OPTIONAL,
    Count,
    FieldError,
    FileInfo,
    Must,
    Sha256,
    load_json,
    read_json,
)
from bagpipe_hpc.storage.shards.agreement import (
    check_features,
    check_graph,
    check_names,
    check_shards,
    check_sums,
    check_tables,
)
from bagpipe_hpc.storage.shards.entries import (
    DrawnFeature,
    FeatureInfo,
    GraphInfo,
    InputInfo,
    OtherName,
    ShardInfo,
    ShownName,
    TableInfo,
    id_dtype,
)

SCHEMA_VERSION = 1
"""Version of a manifest whose samples look up one row of each table and have one label and no weight."""
RAGGED_SCHEMA_VERSION = 2
"""Version of one with other features, several labels or weights of samples, which older programs would misread."""
MANIFEST_NAME = "manifest.json"
_MOST_BYTES = 256 << 20
"""Upper limit of a manifest's size, far above any real one: a manifest lists a file a shard."""
UNFINISHED_NAME = "preparation.json"
"""The file that a preparation keeps its progress in until the manifest is there."""
PREPARE_AGAIN = "run bagpipe prepare again into a new folder"
SPLITS = ("train", "test")
_VERSIONS = (SCHEMA_VERSION, RAGGED_SCHEMA_VERSION)
_ONE_LABEL = ("label",)


@dataclass(frozen=True)
class ShardManifest:
    """Everything that is known of prepared clicks.

    Attributes:
        schema_version: version of this format; raised where the columns need a later one than was given.
        source_format: format of the input, such as `criteo`.
        dense_features: number of dense features of a sample.
        tables: the embedding tables.
        train: shards of the training samples, in time order.
        test: shards of the test samples, later than all of `train`.
        inputs: the input files, in the order in which they were read.
        settings: the settings of the preparation.
        skipped_rows: malformed rows that were left out, as `FILE:LINE: REASON`.
        vocabularies: the file that says which value has which id (`vocabularies.vocabulary`); None if all are hashed.
        hashed_tables: tables whose values are hashed to their ids, while the others have vocabularies.
        features: the columns of look-ups; if not given, one for each table, with its name and one id a sample.
        labels: names of the K labels of a sample.
        weighted_samples: whether each sample has a weight.
        waiting: the file of values that are too rare for an id (`vocabularies.waiting_values`); None where not kept.
        grown_from: digest of the vocabularies that these have grown out of, with `prepare --grow`; otherwise None.
        others: names of further columns of samples, which training does not read: `timestamp`, `group`. Manifests of
            older programs lack it.
        graph: the graph that neighbours of samples are drawn from; None where shards hold all look-ups.
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
    features: tuple[FeatureInfo, ...] = ()
    labels: tuple[str, ...] = _ONE_LABEL
    weighted_samples: bool = False
    waiting: FileInfo | None = None
    grown_from: str | None = None
    others: tuple[str, ...] = ()
    graph: GraphInfo | None = None

    def __post_init__(self) -> None:
        plain = _plain_features(self.tables)
        if not self.features:
            object.__setattr__(self, "features", plain)
        if (self.features, self.labels, self.weighted_samples) != (plain, _ONE_LABEL, False):
            object.__setattr__(self, "schema_version", max(self.schema_version, RAGGED_SCHEMA_VERSION))

    @property
    def feature_tables(self) -> tuple[int, ...]:
        """Number of the table of each feature."""
        numbers = {table.name: number for number, table in enumerate(self.tables)}
        return tuple(numbers[feature.table] for feature in self.features)

    def with_drawn(self, features: Sequence[DrawnFeature]) -> "ShardManifest":
        """The same manifest with features that are drawn added to those of every sample."""

        def of_shards(shards: tuple[ShardInfo, ...]) -> tuple[ShardInfo, ...]:
            ids = [feature.longest for feature in features]
            return tuple(replace(one, values=(*one.values, *(one.rows * of_each for of_each in ids))) for one in shards)

        drawn = replace(self, train=of_shards(self.train), test=of_shards(self.test))
        return replace(drawn, features=(*self.features, *features))

    def stored(self) -> "ShardManifest":
        """The same manifest without features that are drawn: what the shards hold."""
        features = tuple(feature for feature in self.features if not isinstance(feature, DrawnFeature))
        if (drawn := len(self.features) - len(features)) == 0:
            return self
        train, test = (
            tuple(replace(one, values=one.values[:-drawn]) for one in shards) for shards in (self.train, self.test)
        )
        return replace(self, train=train, test=test, features=features)

    @property
    def mean_look_ups(self) -> tuple[float, ...]:
        """Ids that a sample has of each table, on average over both splits; 0 where there are no samples."""
        shards = self.train + self.test
        samples = sum(shard.rows for shard in shards)
        of_ragged = map(sum, zip(*(shard.values for shard in shards), strict=True))
        ids = [0] * len(self.tables)
        for feature, table in zip(self.features, self.feature_tables, strict=True):
            ids[table] += next(of_ragged, 0) if feature.ragged else samples
        return tuple(count / max(1, samples) for count in ids)

    @property
    def ragged_features(self) -> tuple[FeatureInfo, ...]:
        """The features with any number of ids a sample, in order: those of `ShardInfo.values`."""
        return tuple(feature for feature in self.features if feature.ragged)

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Number of ids of each table."""
        return tuple(table.rows for table in self.tables)

    @property
    def sparse_dtype(self) -> str:
        """Type of the stored ids: `int32`, or `int64` where a table needs it."""
        return id_dtype(max(self.table_rows, default=0))

    @property
    def label_rate(self) -> float:
        """Share of samples of both splits whose first label is 1; 0 where there are none."""
        return self.label_rates[0]

    @property
    def label_rates(self) -> tuple[float, ...]:
        """Share of samples of both splits with 1, for each label; 0 where there are none."""
        shards = self.train + self.test
        rows = max(1, sum(shard.rows for shard in shards))
        positives = [(shard.positives, *shard.more_positives) for shard in shards] or [(0,) * len(self.labels)]
        return tuple(sum(counts) / rows for counts in zip(*positives, strict=True))

    def shards(self, split: str) -> tuple[ShardInfo, ...]:
        """Shards of `train` or `test`.

        Raises:
            ValueError: there is no such split.
        """
        if split not in SPLITS:
            raise ValueError(f"split is {split!r} instead of one of {', '.join(SPLITS)}")
        return self.train if split == "train" else self.test

    def rows(self, split: str) -> int:
        """Number of samples of `train` or `test`."""
        return sum(shard.rows for shard in self.shards(split))

    def digest(self, split: str) -> str:
        """SHA-256 over the shards of a split in their order, by rows and checksum; their names do not matter.

        The checksum of the graph follows where there is one.

        Returns:
            64 hexadecimal digits.
        """
        lines = [f"{shard.rows} {shard.sha256}\n" for shard in self.shards(split)]
        if self.graph is not None:
            lines.append(f"graph {self.graph.sha256}\n")
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
            "shards": {split: [shard.to_json() for shard in self.shards(split)] for split in SPLITS},
            "inputs": [vars(source) for source in self.inputs],
            "settings": dict(self.settings or {}),
            "skipped_rows": list(self.skipped_rows),
        }
        if self.vocabularies is not None:
            fields["vocabularies"] = vars(self.vocabularies)
        if self.hashed_tables:
            fields["hashed_tables"] = list(self.hashed_tables)
        if self.waiting is not None:
            fields["waiting"] = vars(self.waiting)
        if self.grown_from is not None:
            fields["grown_from"] = self.grown_from
        if self.others:
            fields["others"] = list(self.others)
        if self.graph is not None:
            fields["graph"] = vars(self.graph)
        if self.schema_version >= RAGGED_SCHEMA_VERSION:
            fields["features"] = [vars(feature) for feature in self.features]
            fields["labels"] = list(self.labels)
            fields["weighted_samples"] = self.weighted_samples
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
    """The text of `manifest.json`, which says some things twice for people who read it."""

    schema_version: Annotated[int, Must(_VERSIONS.__contains__, f"one of {_VERSIONS}, which this program reads")]
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
    features: tuple[FeatureInfo, ...] | None = field(default=None, metadata=OPTIONAL)
    labels: tuple[ShownName, ...] | None = field(default=None, metadata=OPTIONAL)
    weighted_samples: bool | None = field(default=None, metadata=OPTIONAL)
    waiting: FileInfo | None = field(default=None, metadata=OPTIONAL)
    grown_from: Sha256 | None = field(default=None, metadata=OPTIONAL)
    others: tuple[OtherName, ...] = field(default=(), metadata=OPTIONAL)
    graph: GraphInfo | None = field(default=None, metadata=OPTIONAL)

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
            features=self.features or (),
            labels=self.labels or _ONE_LABEL,
            weighted_samples=self.weighted_samples or False,
            waiting=self.waiting,
            grown_from=self.grown_from,
            others=self.others,
            graph=self.graph,
        )

    def __post_init__(self) -> None:
        self._check_version()
        features = self.features or ()
        names = {"features": [feature.name for feature in features], "labels": self.labels or (), "others": self.others}
        check_names(names)
        check_features(features, self.tables)
        manifest = self.manifest
        for split in SPLITS:
            check_shards(f"shards.{split}", manifest.shards(split), manifest.features, len(manifest.labels))
        for split, rows in (("train", self.rows.train), ("test", self.rows.test)):
            if rows != manifest.rows(split):
                raise FieldError(f"rows.{split}", f"is {rows}, not the sum of its shards' rows, {manifest.rows(split)}")
        if self.label_rate != manifest.label_rate:
            raise FieldError("label_rate", f"is {self.label_rate}, not that of the shards, {manifest.label_rate}")
        check_sums({"tables": manifest.table_rows, "rows": (self.rows.train, self.rows.test)})
        files = [shard.file for shard in manifest.train + manifest.test]
        files += [info.file for info in (self.vocabularies, self.waiting, self.graph) if info]
        if len(set(files)) != len(files):
            raise FieldError("shards", "names a file twice")
        check_tables(self.tables, self.hashed_tables)
        check_graph(self.graph, manifest.features)

    def _check_version(self) -> None:
        """Refuse fields that the version does not have, and a version without its fields."""
        for name in ("features", "labels", "weighted_samples"):
            if self.schema_version == SCHEMA_VERSION and getattr(self, name) is not None:
                raise FieldError(name, f"is unknown in schema_version {SCHEMA_VERSION}")
            if self.schema_version == RAGGED_SCHEMA_VERSION and getattr(self, name) in (None, ()):
                raise FieldError(name, "is missing" if getattr(self, name) is None else "names none")


def _plain_features(tables: tuple[TableInfo, ...]) -> tuple[FeatureInfo, ...]:
    """A feature for each table, of its name, with one id a sample."""
    return tuple(FeatureInfo(table.name, table.name) for table in tables)


def load_manifest(directory: Path) -> ShardManifest:
    """Read the manifest of a shard directory.

    Raises:
        DataError: there is none, the preparation is not finished, or the manifest is malformed.
        UnicodeEncodeError: the folder's name has letters that this locale cannot encode.
    """
    path = directory / MANIFEST_NAME
    os.fsencode(path)  # `is_file` would swallow the error and find nothing
    try:
        if not path.is_file():
            if (directory / UNFINISHED_NAME).is_file():
                raise DataError(f"{directory}: the preparation is not finished; run bagpipe prepare again to resume")
            seen = "" if directory.is_absolute() else f", as seen from {Path.cwd()}"
            raise DataError(
                f"{directory}: no {MANIFEST_NAME} here{seen}; name a folder that bagpipe prepare has written"
            )
        return load_json(_Document, path, _MOST_BYTES).manifest
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); check the permissions of it and its folder"
        ) from error


def save_manifest(directory: Path, manifest: ShardManifest) -> None:
    """Write `manifest.json`, whole or not at all."""
    with atomic_write(directory / MANIFEST_NAME) as partial:
        partial.write_text(manifest.to_json(), encoding="utf-8")
