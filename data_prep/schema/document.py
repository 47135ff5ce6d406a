"""A schema: describes the columns of files; read from TOML or a manifest, and written back. Standard library only."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.values import CURES, converted, toml_value
from bagpipe_hpc.errors import ConfigError, FileError, read_small
from bagpipe_hpc.storage.shards.entries import GROUP, TIMESTAMP, is_stored_name
from data_prep.formats.columns import Values
from data_prep.formats.layout import SEPARATORS
from data_prep.schema.agreement import (
    check_derived,
    check_one,
    check_own,
    check_separators,
    check_words,
    nearest,
)
from data_prep.schema.columns import (
    KINDS,
    CategoricalColumn,
    GroupColumn,
    LabelColumn,
    MultiHotColumn,
    NumericColumn,
    SchemaColumn,
    TableColumn,
    TimestampColumn,
    UnusedColumn,
    WeightColumn,
)

READY = Path(__file__).parent / "ready"
"""Folder of the schemas that come with the package; their short names are the names of the files."""

_MOST_BYTES = 1 << 20
_FLOAT_INTEGERS = 1 << 53
"""Integers below are read as floats, which hold them exactly."""
_NAMED = {"tab": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}
_TAKEN = ("label", "dense", "weight", TIMESTAMP, GROUP)
"""Names that shards use for what they hold besides features."""
_SECTIONS = ("file", "columns", "derived")
_KEY_OF = {"source": "from"}


@dataclass(frozen=True, kw_only=True)
class FileRules:
    """How text is written; for Parquet files only `missing` matters.

    Attributes:
        separator: the character between fields, or its name: `tab`, `comma`, `semicolon`, `space`, `pipe`.
        header: whether the first line of each file names its columns. Then columns may stand in any order, and there
            may be more of them than the schema has; otherwise fields are those of the schema, in its order.
        quoted: whether a field may stand in double quotes.
        missing: texts that mean that a value is missing, besides an empty field; in Parquet, equal numbers are missing,
            too.
    """

    separator: str = ","
    header: bool = True
    quoted: bool = True
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.character not in SEPARATORS:
            raise SettingError("separator", self.separator, f"use {', '.join(_NAMED)}, or one character such as '^'")
        for word in self.missing:
            if self.character in word or '"' in word or not word.isprintable():
                raise SettingError("missing", list(self.missing), "use words without separators and quotes")

    @property
    def character(self) -> str:
        """The separator itself."""
        return _NAMED.get(self.separator, self.separator)


@dataclass(frozen=True)
class Schema:
    """What files hold, and how it becomes labels and features.

    Attributes:
        file: how text is written.
        columns: the columns of the files, including at least one label and one with a table; in the order of the
            fields, if files have no header.
        derived: features that are made of columns.

    Raises:
        SettingError: columns do not fit each other; the error's `key` names the column and its key.
    """

    file: FileRules
    columns: tuple[SchemaColumn, ...]
    derived: tuple[NumericColumn | CategoricalColumn, ...] = ()

    def __post_init__(self) -> None:
        for section, column in self.placed():
            where = f"{section}.{column.name}"
            if not (column.name.isprintable() and column.name):
                raise SettingError(where, column.name, "use printable characters for its name")
            if isinstance(column, TableColumn):
                for key, name in (("table", column.table), ("name", column.name)):
                    if name is not None and not is_table_name(name):
                        cure = f"use another name than {', '.join(_TAKEN)}, without a slash"
                        raise SettingError(f"{where}.{key}", name, cure)
            if section == "derived":
                if column.name in self._named:
                    raise SettingError(where, column.name, "is the name of a column; give it another one")
                check_derived(where, column, self._named)
            elif isinstance(column, NumericColumn | CategoricalColumn):
                check_own(where, column)
            elif isinstance(column, MultiHotColumn):
                check_separators(where, column, self.file.character)
            elif isinstance(column, LabelColumn):
                check_words(f"{where}.positive", column.positive, self.file.missing)
        check_one(self.columns, WeightColumn, "sample_weight")
        check_one(self.columns, TimestampColumn, "timestamp")
        check_one(self.columns, GroupColumn, "group")
        kinds = f"{', '.join(column.name for column in self.columns)}"
        if not any(isinstance(column, LabelColumn) for column in self.columns):
            raise SettingError("columns", kinds, 'none is a label; give one kind = "label"')
        if not any(isinstance(column, TableColumn) for column in self.outputs):
            raise SettingError("columns", kinds, 'none has a table; give one kind = "categorical" at least')
        self._check_tables()

    @property
    def outputs(self) -> tuple[SchemaColumn, ...]:
        """What parsed rows hold: the columns that are used, then the derived ones."""
        return (*(column for column in self.columns if not isinstance(column, UnusedColumn)), *self.derived)

    def placed(self) -> Iterable[tuple[str, SchemaColumn]]:
        """All columns, each with the name of its section."""
        yield from (("columns", column) for column in self.columns)
        yield from (("derived", column) for column in self.derived)

    @cached_property
    def _named(self) -> dict[str, SchemaColumn]:
        """The columns of the files by their names."""
        return {column.name: column for column in self.columns}

    def values_of(self, column: CategoricalColumn | MultiHotColumn) -> Values:
        """The kind of a column's values, once they are made."""
        if isinstance(column, MultiHotColumn):
            return Values(column.values)
        if column.cross:
            both = (self._named[name] for name in column.cross)
            narrow = all(self.values_of(other).is_32_bit for other in both if isinstance(other, CategoricalColumn))
            return Values.INTEGER if narrow else Values.TEXT
        if column.in_intervals or column.part:
            return Values.NUMBER
        source = column if column.source is None else self._named[column.source]
        return Values(source.values) if isinstance(source, CategoricalColumn) else Values.INTEGER

    def _check_tables(self) -> None:
        """Check that columns that share a table have values of one kind, and the same rule for ids."""
        first: dict[str, tuple[CategoricalColumn | MultiHotColumn, str]] = {}
        for section, column in self.placed():
            if not isinstance(column, CategoricalColumn | MultiHotColumn):
                continue
            other, place = first.setdefault(column.table or column.name, (column, f"{section}.{column.name}"))
            if (values := self.values_of(column)) is not (others := self.values_of(other)):
                cure = f"{place} shares the table {column.table or column.name}, whose values are {others}"
                raise SettingError(f"{section}.{column.name}.values", values.value, cure)
            for key in ("min_count", "max_rows", "hash_rows"):
                if (value := getattr(column, key)) != getattr(other, key):
                    cure = f"{place} shares the table and has {key} = {getattr(other, key)}; give both the same"
                    raise SettingError(f"{section}.{column.name}.{key}", value, cure)


def is_table_name(name: str) -> bool:
    """Whether a feature and its table may have a name: shards store it beside names of their own."""
    return is_stored_name(name) and name not in _TAKEN


def load_schema(name: str) -> Schema:
    """The schema of a TOML file, or a ready one by its short name.

    Raises:
        ConfigError: there is no such file, or something in it is wrong; the message names the file, the column, the
            key, the value and the cure.
    """
    path, ready = Path(name), READY / f"{name}.toml"
    if "/" not in name and not path.is_file() and ready.is_file():
        path = ready
    known = ", ".join(sorted(file.stem for file in READY.glob("*.toml")))
    try:
        document = tomllib.loads(read_small(path, _MOST_BYTES))
    except FileError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); ready schemas are {known}, and `bagpipe schema FILE` proposes "
            "one"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}; a column is written NAME = {{ kind = "
                          '"numeric" } below [columns]') from None  # fmt: skip
    for section in ("columns", "derived"):
        table = document.get(section, {})
        if not isinstance(table, dict):
            raise ConfigError(
                f"{path}: {section} = {table!r:.80}: is a section; write [{section}], and a column a line"
            )
        for column, keys in table.items():
            if not isinstance(keys, dict):
                raise ConfigError(f'{path}: {section}.{column} = {keys!r:.80}: write it as {{ kind = "numeric" }}')
            if "name" in keys:
                raise ConfigError(f"{path}: {section}.{column}.name = {keys['name']!r:.80}: leave it out: the name "
                                  "stands before the equals sign")  # fmt: skip
        document[section] = [{"name": column} | keys for column, keys in table.items()]
    return schema_of(document, str(path))


def schema_of(document: Mapping[str, Any], source: str) -> Schema:
    """The schema of a document such as `to_document` gives.

    Args:
        document: plain values.
        source: where it comes from, for messages.

    Raises:
        ConfigError: something in it is wrong.
    """
    for section in document:
        if section not in _SECTIONS:
            raise ConfigError(f"{source}: {section}: no such section; {nearest(section, _SECTIONS)}")
    rules = document.get("file", {})
    if not isinstance(rules, dict):
        raise ConfigError(f"{source}: file = {rules!r:.80}: is a section; write [file] and its keys below")
    read: dict[str, list[Any]] = {"columns": [], "derived": []}
    for section, columns in read.items():
        for keys in document.get(section, []):
            columns.append(_column(section, keys, source))
    try:
        return Schema(_entry(FileRules, rules, f"{source}: file"), tuple(read["columns"]), tuple(read["derived"]))
    except SettingError as error:
        raise ConfigError(f"{source}: {error}") from None


def to_document(schema: Schema) -> dict[str, Any]:
    """The schema as plain values that JSON can hold, without those at their defaults. `schema_of` reads it."""
    return {
        "file": _given(schema.file),
        "columns": [_column_document(column) for column in schema.columns],
        "derived": [_column_document(column) for column in schema.derived],
    }


def column_toml(column: SchemaColumn) -> str:
    """The line of a column in TOML."""
    keys = {key: _short(value) for key, value in _column_document(column).items() if key != "name"}
    name = column.name if column.name.isascii() and column.name.replace("_", "").replace("-", "").isalnum() else None
    return f"{name or toml_value(column.name)} = {toml_value(keys)}"


def _short(value: Any) -> Any:
    """A value in which floats that equal whole numbers are replaced by these, as far as these are read as floats."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    is_short = isinstance(value, float) and value.is_integer() and abs(value) < _FLOAT_INTEGERS
    return int(value) if is_short else value


def _column_document(column: SchemaColumn) -> dict[str, Any]:
    kind = next(name for name, found in KINDS.items() if type(column) is found)
    given = _given(column)
    return {"name": given.pop("name"), "kind": kind} | given


def _given(entry: Any) -> dict[str, Any]:
    """The keys of an entry that differ from their defaults."""
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {
        _KEY_OF.get(field.name, field.name): list(value) if isinstance(value, tuple) else value
        for field in fields(entry)
        if (value := values[field.name]) != field.default
    }


def _column(section: str, keys: Mapping[str, Any], source: str) -> SchemaColumn:
    where = f"{source}: {section}.{keys.get('name')}"
    kind = keys.get("kind", MISSING)
    if kind is MISSING:
        raise ConfigError(f"{where}: has no kind; give it one of {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{where}: kind = {kind!r:.80}: {nearest(str(kind), list(KINDS))}")
    column: SchemaColumn = _entry(KINDS[kind], {key: value for key, value in keys.items() if key != "kind"}, where)
    return column


def _entry(kind: type[Any], keys: Mapping[str, Any], where: str) -> Any:
    """An object of a class of columns or rules, from keys and values that are not trusted."""
    types = get_type_hints(kind)
    names = {_KEY_OF.get(field.name, field.name): field.name for field in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in names:
            raise ConfigError(f"{where}: {key} = {value!r:.80}: no such key; "
                              f"{nearest(key, [name for name in names if name != 'name'])}")  # fmt: skip
        wanted = types[names[key]]
        if isinstance(wanted, UnionType):
            wanted = next(part for part in get_args(wanted) if part is not NoneType)
        if wanted is float and isinstance(value, int) and abs(value) >= _FLOAT_INTEGERS:
            raise ConfigError(f"{where}: {key} = {value!r}: {CURES[float]} of at most 53 bits")
        values[names[key]] = converted(value, wanted, key, where)
    try:
        return kind(**values)
    except SettingError as error:
        raise ConfigError(f"{where}: {error}") from None
