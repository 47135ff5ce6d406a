"""Settings from a TOML file and from overrides, and back to TOML. Standard library only.

Relative paths in `data.path` and `train.output` are relative to the current directory, not to the TOML file: one file
serves every folder that a run is started in.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from bagpipe_hpc.config.doors import Door, SettingError, door_of
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.values import BARE_KEY, CURES, converted, is_default, toml_value, written_value
from bagpipe_hpc.errors import ConfigError, FileError, not_text, read_small

_MOST_BYTES = 1 << 20
"""Largest configuration file; all settings with their meanings take a fiftieth of that."""
_BYTE_ORDER_MARK = "\ufeff"
"""Some editors begin each file with it."""


def doors() -> dict[str, Door]:
    """Every door that a run's settings have, by the setting that chooses."""
    sections: dict[str, type[Any]] = get_type_hints(Config)
    found = (door_of(field) for section_class in sections.values() for field in fields(section_class))
    return {door.key: door for door in found if door}


def setting_types(chosen: Mapping[str, str] | None = None) -> dict[str, object]:
    """The declared type of every setting, by its key `section.field`, in the order of the declarations.

    Args:
        chosen: the entry that each door names, by the door's key; doors that are left out name their defaults.

    Raises:
        SettingError: a door has no such entry.
    """
    types: dict[str, object] = {}
    for section, section_class in get_type_hints(Config).items():
        kinds = get_type_hints(section_class)
        for setting in fields(section_class):
            if (door := door_of(setting)) is None:
                types[f"{section}.{setting.name}"] = kinds[setting.name]
                continue
            name = (chosen or {}).get(door.key) or _default(section_class, door)
            own_types = {f"{door.prefix}{own}": kind for own, kind in _own_types(door, name).items()}
            taken = {*types, *(f"{section}.{other.name}" for other in fields(section_class))}
            if both := sorted(taken & own_types.keys()):
                raise SettingError(door.key, name, f"its Settings would make a second {both[0]}: name that field anew")
            types |= own_types
    return types


def _own_types(door: Door, name: str) -> dict[str, object]:
    """The declared type of each own setting of the entry `name` of a door."""
    settings = door.settings_class(name)
    with door.blaming(name, "the types in its Settings cannot be read"):
        own = get_type_hints(settings)
    for entry in fields(settings):
        if not BARE_KEY.fullmatch(entry.name):
            raise SettingError(door.key, name, f"its Settings have {entry.name}: use letters of ASCII for its name")
        if own[entry.name] not in CURES:
            possible = "bool, int, float, str, tuples of one of these (tuple[int, ...]) and dict[str, Any]"
            raise SettingError(
                door.key, name, f"its Settings give {entry.name} a type that TOML has not: use {possible}"
            )
        default = entry.default_factory() if callable(entry.default_factory) else entry.default
        if not is_default(default, own[entry.name]):
            cure = f"its Settings give {entry.name} the default {default!r:.80}: {CURES[own[entry.name]]}"
            raise SettingError(door.key, name, cure.replace("a list", "a tuple"))
    return {entry.name: own[entry.name] for entry in fields(settings)}


def _make_settings(door: Door, name: str, values: dict[str, Any]) -> Any:
    """The own settings of what a door names, made of checked values; what is left out keeps its default.

    Raises:
        SettingError: they refuse a value.
    """
    told = ", ".join(f"{key} = {value!r:.80}" for key, value in values.items())
    with door.blaming(name, f"its Settings refuse {told or 'their defaults'}"):
        return door.settings_class(name)(**values)


def settings_of_options(door: Door, name: str, options: Sequence[str]) -> Any:
    """The own settings of what a door names, where the command line alone gives them.

    Args:
        door: chosen on the command line; its prefix is that of an option.
        name: what it names.
        options: `key=value`, the value written as in TOML; strings may go without quotes.

    Raises:
        ConfigError: there is no such entry or setting, or the value is not one that the setting can have.
    """
    types = _own_types(door, name)
    values: dict[str, object] = {}
    for text in options:
        source = f"{door.prefix}{text!r}"
        key, equals, written = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"{source}: has no value; write {door.prefix}key=value")
        if key not in types:
            known = f"its settings are {', '.join(types)}" if types else "it has no settings"
            raise ConfigError(f"{source}: {key} = {written!r}: no such setting of {name}; {known}")
        if key in values:
            raise ConfigError(f"{source}: {key} = {written!r}: is given twice; keep one of the two")
        values[key] = converted(written_value(key, written, types[key], source), types[key], key, source)
    try:
        return _make_settings(door, name, values)
    except SettingError as error:
        raise SettingError(f"{door.prefix}{error.key}", error.value, error.cure) from None


def _default(section_class: type[Any], door: Door) -> str:
    """What a door names where no setting says it."""
    name = door.key.partition(".")[2]
    return next(str(setting.default) for setting in fields(section_class) if setting.name == name)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, replace what the overrides name and check every value.

    Args:
        path: TOML file with a section for each part of `Config`; what it leaves out keeps its default.
        overrides: `section.field=value`, the value written as in TOML; strings may go without quotes.

    Raises:
        ConfigError: something is wrong; the message names the file or the override, the key, the value and the cure.
    """
    return config_of(_settings_of_file(path), str(path), overrides)


def config_of(given: Mapping[str, object], source: str, overrides: Sequence[str] = ()) -> Config:
    """The configuration of settings that were read, with overrides, every value checked.

    Args:
        given: values as TOML or JSON gives them, by `section.field`; what is left out keeps its default.
        source: where they were read, for messages.
        overrides: as for `load_config`.

    Raises:
        ConfigError: as by `load_config`.
    """
    types = _types_for(given, source, overrides)
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for key, value in given.items():
        if key not in types and any(value == default for _, default in _of_others(key)):
            continue  # it would change nothing; a run of an earlier version recorded the settings of all row optimizers
        _require_known(key, value, types, source)
        values[key], sources[key] = converted(value, types[key], key, source), source
    for text in overrides:
        key, value = _split_override(text, types)
        override = f"override {text!r}"
        if sources.get(key, "").startswith("override"):
            raise ConfigError(f"{override}: {key} = {value!r}: is overridden twice; keep one of the two")
        values[key], sources[key] = converted(value, types[key], key, override), override
    try:
        return _config_of(values)
    except SettingError as error:
        raise ConfigError(f"{sources.get(error.key, source)}: {error}") from None


def to_toml(config: Config) -> str:
    """Write every setting as TOML; `load_config` of the text gives an equal `Config`."""
    lines: list[str] = []
    for section, settings in to_document(config).items():
        lines += [f"[{section}]"]
        lines += [f"{name} = {toml_value(value)}" for name, value in settings.items()]
        lines += [""]
    return "\n".join(lines)


def to_document(config: Config) -> dict[str, dict[str, Any]]:
    """Every setting as it stands in TOML, by section and name: those of entries are beside the setting that chooses."""
    document: dict[str, dict[str, Any]] = {}
    for section in fields(Config):
        part = getattr(config, section.name)
        settings = document[section.name] = {}
        for setting in fields(part):
            value = getattr(part, setting.name)
            if (door := door_of(setting)) is None:
                settings[setting.name] = value
                continue
            prefix = door.prefix.partition(".")[2]
            settings |= {f"{prefix}{own.name}": getattr(value, own.name) for own in fields(value)}
    return document


def own_keys(config: Config, door: Door) -> list[str]:
    """The keys of the own settings of what `door` names in a configuration."""
    section = getattr(config, door.key.partition(".")[0])
    return [
        f"{door.prefix}{own.name}"
        for setting in fields(section)
        if door_of(setting) is door
        for own in fields(getattr(section, setting.name))
    ]


def _settings_of_file(path: Path) -> dict[str, object]:
    """The settings that a TOML file gives, by key, not yet checked."""
    try:
        document = tomllib.loads(read_small(path, _MOST_BYTES).removeprefix(_BYTE_ORDER_MARK))
    except FileError as error:
        raise ConfigError(f"{error}; configs/ holds examples") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); configs/ holds examples") from None
    except (ValueError, RecursionError) as error:
        # TOMLDecodeError, UnicodeDecodeError, an integer of thousands of digits, or as many brackets
        raise ConfigError(f"{path}: is not TOML: {error}; strings need quotes, sections are written [train]") from None
    settings: dict[str, object] = {}
    sections = {section.name for section in fields(Config)}
    for name, table in document.items():
        if isinstance(table, dict) and (table or name in sections):
            own = {f"{name}.{field}": value for field, value in table.items()}
            if twice := next((key for key in own if key in document), None):  # as "train.seed" = 1 in quotes
                raise ConfigError(f"{path}: {twice} = {document[twice]!r:.80}: is given twice; keep one of the two")
            settings |= own
        elif name in sections:
            raise ConfigError(f"{path}: {name} = {table!r}: is a section; write [{name}] and its settings below")
        else:
            settings[name] = table
    return settings


def _types_for(given: Mapping[str, object], path: str, overrides: Sequence[str]) -> dict[str, object]:
    """The types of all settings, with those of the entries that doors name.

    Raises:
        ConfigError: there is no such entry.
    """
    keys = doors()
    chosen, sources = {}, {}
    for key, value in given.items():
        if key in keys and isinstance(value, str):
            chosen[key], sources[key] = value, path
    for text in overrides:
        key, _, written = (part.strip() for part in text.partition("="))
        if key in keys:
            chosen[key], sources[key] = _unquoted(written), f"override {text!r}"
    try:
        return setting_types(chosen)
    except SettingError as error:
        raise ConfigError(f"{sources.get(error.key, path)}: {error}") from error


def _unquoted(written: str) -> str:
    return written[1:-1] if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'" else written


def _split_override(text: str, types: dict[str, object]) -> tuple[str, object]:
    """The key of an override and its value, not yet checked against the key's type."""
    source = f"override {text!r}"
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals:
        raise ConfigError(f"{source}: has no value; write section.field=value, such as train.seed=2")
    _require_known(key, written, types, source)
    if problem := not_text(written):
        raise ConfigError(f"{source}: {key} = {written!r}: {problem}")
    return key, written_value(key, written, types[key], source)


def _require_known(key: str, value: object, types: dict[str, object], source: str) -> None:
    if key in types:
        return
    table, _, entry = key.rpartition(".")
    if get_origin(types.get(table)) is dict:
        raise ConfigError(
            f"{source}: {key} = {value!r}: {table} is one setting; give it whole, as {table} = {{ {entry} = {value} }}"
        )
    same_name = [known for known in types if known.partition(".")[2] == key.rpartition(".")[2]]
    nearest = difflib.get_close_matches(key, same_name, n=1, cutoff=0.0) or difflib.get_close_matches(key, types, n=1)
    cure = f"did you mean {nearest[0]}?" if nearest else "`bagpipe keys` lists every setting"
    for door in doors().values():
        if key.startswith(door.prefix):  # it may be of another entry
            own = _own_keys(door, types)
            cure += f"; of its own, what {door.key} names has {', '.join(own) if own else 'no settings'}"
    if others := [name for name, _ in _of_others(key)]:
        cure += f"; leave it out, it is for {', '.join(others)}"
    raise ConfigError(f"{source}: {key} = {value!r}: no such setting; {cure}")


def _of_others(key: str) -> list[tuple[str, object]]:
    """The short names whose own settings have a key, each with its default as TOML gives it."""
    found: list[tuple[str, object]] = []
    for door in doors().values():
        for name in door.entries if key.startswith(door.prefix) else ():
            defaults = door.settings_class(name)()
            own = key.removeprefix(door.prefix)
            if own in {entry.name for entry in fields(defaults)}:
                default = getattr(defaults, own)
                found.append((name, list(default) if isinstance(default, tuple) else default))
    return found


def _own_keys(door: Door, types: dict[str, object]) -> list[str]:
    """The own settings of what `door` names, among the settings that there are."""
    section, _, _ = door.key.partition(".")
    common = {f"{section}.{setting.name}" for setting in fields(get_type_hints(Config)[section])}
    return [key for key in types if key.startswith(door.prefix) and key not in common]


def _config_of(values: dict[str, object]) -> Config:
    """The configuration of checked values; the own settings of entries make a value of their own class."""
    sections: dict[str, Any] = {}
    for section, section_class in get_type_hints(Config).items():
        given: dict[str, Any] = {}
        for setting in fields(section_class):
            if (door := door_of(setting)) is not None:
                name = str(values.get(door.key) or _default(section_class, door))
                given[setting.name] = _own_settings(door, name, values)
            elif (key := f"{section}.{setting.name}") in values:
                given[setting.name] = values[key]
        sections[section] = section_class(**given)
    return Config(**sections)


def _own_settings(door: Door, name: str, values: dict[str, object]) -> Any:
    """The own settings of what `door` names."""
    kind = door.settings_class(name)
    keys = {own.name: f"{door.prefix}{own.name}" for own in fields(kind)}
    try:
        return _make_settings(door, name, {own: values[key] for own, key in keys.items() if key in values})
    except SettingError as error:
        raise SettingError(keys.get(error.key, error.key), error.value, error.cure) from None
