"""What a shard directory records about its preparation: enough to turn later rows into samples in the same way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.check import check_vocabularies
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, PREPARE_AGAIN, ShardManifest, load_manifest
from bagpipe_hpc.storage.vocabularies.vocabulary import (
    VOCABULARIES_NAME,
    TableVocabulary,
    copy_vocabularies,
    read_table_vocabulary,
)
from data_prep.backend import choose_backend
from data_prep.formats.checked_rows import checked_refinement
from data_prep.formats.columns import SparseList, Values, table_of
from data_prep.formats.layout import RowLayout
from data_prep.formats.load import load_format
from data_prep.formats.source_format import Refine, SourceFormat
from data_prep.preparation_state import FITTED
from data_prep.prepare_settings import PrepareSettings
from data_prep.sample_encoder import SampleEncoder

_KINDS = {
    "min_count": int,
    "max_rows_per_table": int,
    "unseen_buckets": int,
    "rows_per_shard": int,
    "test_fraction": float,
    "compression": str,
    "chunk_checksums": bool,
    "schema": dict,
}
"""The recorded settings that are fields of `PrepareSettings` with the same name, and their types."""
_OF_ROWS = ("source_format", "format_options", "schema", "min_count", "max_rows_per_table", "unseen_buckets")
"""Settings that say what a row means: later rows must have those of the earlier ones."""
_WIDE = {Values.INTEGER: np.dtype(np.int64), Values.TEXT: np.dtype(np.object_)}
"""The stored type of values other than those of 32 bits."""


@dataclass(frozen=True)
class RecordedMethod:
    """How the rows of a shard directory were prepared, as its manifest says.

    Attributes:
        directory: the shard directory.
        manifest: its manifest.
        source_format: what its raw rows look like.
        settings: how they were prepared; `for_later_rows` says which of them later rows must share.
    """

    directory: Path
    manifest: ShardManifest
    source_format: SourceFormat
    settings: PrepareSettings

    def refuse_contradictions(self, given: Mapping[str, Any]) -> None:
        """Refuse settings of later rows that would give their values another meaning.

        Args:
            given: settings that were asked for, by the names of `PrepareSettings`.

        Raises:
            ConfigError: a setting differs from that of the directory.
        """
        limit = self.settings.max_rows_per_table
        recorded = {name: getattr(self.settings, name) for name in _OF_ROWS}
        recorded["min_count"] = self.settings.min_count if limit is None else f"max-rows-per-table = {limit}"
        recorded["max_rows_per_table"] = limit or f"min-count = {self.settings.min_count}"
        for name, asked in given.items():
            if name == "schema" and asked != recorded[name]:
                self._refuse("schema", "a schema", "another one")
            elif name == "format_options":
                self._refuse_other_options(asked)
            elif name in recorded and asked != recorded[name]:
                self._refuse("format" if name == "source_format" else name.replace("_", "-"), asked, recorded[name])

    def _refuse_other_options(self, options: Sequence[str]) -> None:
        asked = load_format(self.settings.source_format, options, self.settings.schema)[1]
        found = load_format(self.settings.source_format, self.settings.format_options, self.settings.schema)[1]
        for name in (option.partition("=")[0].strip() for option in options):
            if asked[name] != found[name]:
                self._refuse("format-option", f"{name}={toml_value(asked[name])}", f"{name}={toml_value(found[name])}")

    def _refuse(self, flag: str, asked: object, found: object) -> NoReturn:
        raise ConfigError(
            f"prepare: {flag} = {asked!r}: {self.directory} was prepared with {found}, and later rows are prepared as "
            f"these were; leave --{flag} out"
        )

    def for_later_rows(self, settings: PrepareSettings) -> PrepareSettings:
        """The settings of later rows: what rows mean is as in the directory, all else as given.

        Args:
            settings: the given settings; one of `_OF_ROWS` may have its default, or the directory's value.

        Raises:
            ConfigError: one of `_OF_ROWS` has another value.
        """
        defaults = {field.name: field.default for field in fields(PrepareSettings)}
        given = {name: getattr(settings, name) for name in _OF_ROWS}
        self.refuse_contradictions({name: value for name, value in given.items() if value != defaults[name]})
        return replace(settings, **{name: getattr(self.settings, name) for name in _OF_ROWS})


@dataclass(frozen=True)
class RecordedPreparation(RecordedMethod):
    """How the rows of a shard directory were prepared, with the ids of their values.

    Attributes:
        vocabularies: the vocabulary of each table, in the order of the manifest; None where its values are hashed.
    """

    vocabularies: tuple[TableVocabulary | None, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabularies, 64 hexadecimal digits."""
        return self._vocabularies_file.sha256

    @property
    def _vocabularies_file(self) -> FileInfo:
        if self.manifest.vocabularies is None:
            raise ValueError(f"{self.directory} has no vocabularies, which load_recorded refuses")
        return self.manifest.vocabularies

    @property
    def fitted(self) -> Mapping[str, Any] | None:
        """What the source format took from the training rows; None where it takes nothing."""
        return (self.manifest.settings or {}).get(FITTED)

    def refinement(self) -> Refine | None:
        """A function that makes final rows of parsed ones; None where parsed rows are final.

        Raises:
            DataError: the manifest does not say what was taken from the training rows.
        """
        if self.fitted is None:
            return None
        try:
            return checked_refinement(self.source_format, self.settings.source_format, self.fitted)
        except ConfigError as error:
            path = self.directory / MANIFEST_NAME
            raise DataError(f"{path}: settings.{FITTED}: {error}; {PREPARE_AGAIN}") from None

    def copy_vocabularies(self, directory: Path) -> FileInfo:
        """Copy the vocabularies to another shard directory, byte for byte.

        Raises:
            DataError: they changed meanwhile.
        """
        return copy_vocabularies(self.directory, directory, self._vocabularies_file)

    def encoder(self, backend: str = "auto") -> SampleEncoder:
        """An encoder of parsed rows (`SourceFormat.schema`) with the ids of the directory, for any thread.

        Args:
            backend: as `PrepareSettings.backend`.

        Raises:
            ConfigError: native code is asked for and was not built.
        """
        chosen, _ = choose_backend(backend, self.source_format)
        layout = self.source_format.layout
        rules = [self.settings.id_rule(table) for table in layout.tables]
        id_maps = chosen.id_maps(layout.tables, self.vocabularies, rules)
        return SampleEncoder(layout, id_maps, self.manifest.sparse_dtype, self.refinement())


def load_method(directory: Path) -> RecordedMethod:
    """How a shard directory was prepared, from its manifest alone.

    Raises:
        DataError: the directory holds no finished preparation, or an older version wrote it and did not record enough,
            or its source format has changed.
        ConfigError: its source format is not available here.
    """
    manifest = load_manifest(directory)
    recorded = manifest.settings or {}
    if manifest.graph is not None:
        raise DataError(
            f"{directory}: holds a graph, not rows of a source format; `bagpipe prepare-graph` makes another"
        )
    if recorded.get("min_count") is None and recorded.get("max_rows_per_table") is None:
        raise DataError(
            f"{directory / MANIFEST_NAME}: does not say how the rows were prepared (settings); {PREPARE_AGAIN}"
        )
    source_format, settings = recorded_format(directory, manifest)
    if manifest.vocabularies is None:
        raise DataError(f"{directory}: has no file of vocabularies, as of an older program; {PREPARE_AGAIN}")
    return RecordedMethod(directory, manifest, source_format, settings)


def load_recorded(directory: Path) -> RecordedPreparation:
    """How a shard directory was prepared, with its vocabularies, which are read whole; its shards may be elsewhere.

    Raises:
        DataError: as for `load_method`, or its vocabularies are missing or damaged.
        ConfigError: as for `load_method`.
    """
    method = load_method(directory)
    manifest, settings, layout = method.manifest, method.settings, method.source_format.layout
    check_vocabularies(directory, manifest, "full")
    vocabularies = tuple(_vocabulary(directory, manifest, table.name) for table in manifest.tables)
    for table, vocabulary in zip(layout.tables, vocabularies, strict=True):
        if vocabulary is not None and vocabulary.unseen_buckets != settings.unseen_buckets:
            raise DataError(
                f"{directory / VOCABULARIES_NAME}: has {vocabulary.unseen_buckets} unseen buckets instead of "
                f"{settings.unseen_buckets} as the manifest says; {PREPARE_AGAIN}"
            )
        if vocabulary is not None and vocabulary.values.dtype != _WIDE.get(table.values, np.uint32):
            raise DataError(
                f"{directory / VOCABULARIES_NAME}: table {table.name} holds {vocabulary.values.dtype} values, "
                f"and those of {manifest.source_format} are {table.values}; {PREPARE_AGAIN}"
            )
    return RecordedPreparation(directory, manifest, method.source_format, settings, vocabularies)


def recorded_format(directory: Path, manifest: ShardManifest) -> tuple[SourceFormat, PrepareSettings]:
    """What the raw rows of a shard directory look like, and how they were prepared; from its manifest alone.

    Raises:
        DataError: the settings are malformed, or the source format has changed.
        ConfigError: the source format is not available here.
    """
    settings = _settings(directory / MANIFEST_NAME, manifest)
    try:
        source_format, _ = load_format(settings.source_format, settings.format_options, settings.schema)
    except ConfigError as error:
        raise ConfigError(f"{directory}: its source format cannot be had: {error}") from error
    for problem in _differences(manifest, source_format.layout):
        raise DataError(
            f"{directory}: {manifest.source_format} now has {problem}, so it is not the source format of these rows; "
            f"restore the one that they were prepared with, or {PREPARE_AGAIN}"
        )
    return source_format, settings


def _settings(path: Path, manifest: ShardManifest) -> PrepareSettings:
    recorded = manifest.settings or {}
    found: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        value = recorded.get(name)
        if value is None:
            continue
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise DataError(f"{path}: settings.{name} is {value!r:.80} instead of {kind.__name__}; {PREPARE_AGAIN}")
        found[name] = value
    options = recorded.get("format_options", {})
    if not isinstance(options, dict):
        raise DataError(f"{path}: settings.format_options is {options!r:.80} instead of an object; {PREPARE_AGAIN}")
    written = tuple(f"{name}={toml_value(value)}" for name, value in options.items())
    if found.get("test_fraction") == 1:  # of later rows, all of which are for tests
        del found["test_fraction"]
    try:
        return PrepareSettings(source_format=manifest.source_format, format_options=written, **found)
    except ConfigError as error:
        raise DataError(f"{path}: settings: {error}; {PREPARE_AGAIN}") from error


def _vocabulary(directory: Path, manifest: ShardManifest, table: str) -> TableVocabulary | None:
    return None if table in manifest.hashed_tables else read_table_vocabulary(directory, manifest, table)


def _differences(manifest: ShardManifest, layout: RowLayout) -> Iterator[str]:
    """In what a source format differs from the manifest of rows that it once read."""
    older = manifest.labels == ("label",) and len(layout.labels) == 1  # programs that did not name a single label
    labels = manifest.labels if older else layout.labels
    for what, now, then in (
        ("tables", [table.name for table in layout.tables], [table.name for table in manifest.tables]),
        ("features", list(map(_shape, layout.features)), list(map(_shape, manifest.features))),
        ("labels", list(labels), list(manifest.labels)),
        ("dense features", len(layout.dense), manifest.dense_features),
        ("weights of samples", layout.weight is not None, manifest.weighted_samples),
    ):
        if now != then:
            yield f"the {what} {now} instead of {then}"


def _shape(column: Any) -> tuple[str, str, bool, bool]:
    """Of a column or a feature: name, table, whether it is ragged, and whether its ids have weights."""
    if isinstance(column, FeatureInfo):
        return column.name, column.table, column.ragged, column.weighted
    ragged = isinstance(column, SparseList)
    return column.name, table_of(column), ragged, ragged and column.weights is not None
