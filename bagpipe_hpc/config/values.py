"""Values of settings: the types that they may have, and how TOML writes them. Standard library only."""

import json
import math
import re
import tomllib
from collections.abc import Sequence
from typing import Any, get_args

from bagpipe_hpc.errors import ConfigError, not_text

_LARGEST_INT = 2**63 - 1
_SHOWN_NAMES = 40
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""A key that TOML reads without quotes."""
CURES: dict[object, str] = {
    str: "use a string in quotes",
    bool: "use true or false",
    int: "use a whole number of at most 64 bits",
    float: "use a finite number",
    tuple[int, ...]: "use a list of whole numbers, such as [512, 256]",
    tuple[float, ...]: "use a list of finite numbers, such as [0.5, 1.0]",
    tuple[str, ...]: "use a list of strings in quotes",
    tuple[float, float]: "use a list of two finite numbers, such as [0.9, 0.999]",
    dict[str, Any]: "use a table of numbers, strings and booleans, such as { momentum = 0.9 }",
}
"""The types that a setting may have, each with what to write for it."""


def converted(value: object, kind: object, key: str, source: str) -> object:
    """The value as its setting's type: an integer becomes a float where one is wanted, a list a tuple.

    Raises:
        ConfigError: it is not of that type, or is a path with a `~` that only a shell would replace.
    """
    value = _widened(value, kind)
    if not _fits(value, kind):
        raise ConfigError(f"{source}: {key} = {value!r}: {CURES[kind]}")
    if isinstance(value, str) and is_for_a_shell(value):
        raise ConfigError(
            f"{source}: {key} = {value!r}: only a shell replaces ~, and none reads this; write the path in full"
        )
    return tuple(value) if isinstance(value, list) else value


def _widened(value: object, kind: object) -> object:
    """The value with floats for integers where its setting holds floats."""
    if kind is float and _fits(value, int):
        return float(value)  # type: ignore[arg-type]  # `_fits` says that it is an int
    if kind in (tuple[float, float], tuple[float, ...]) and isinstance(value, list):
        return [_widened(item, float) for item in value]
    return value


def _fits(value: object, kind: object) -> bool:
    """Whether a value from TOML is of a setting's type; a boolean is no number, NaN and infinity are none either."""
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INT
    if kind is float:
        return isinstance(value, float) and math.isfinite(value)
    if kind is str:
        return isinstance(value, str) and is_text(value)
    if kind in (tuple[int, ...], tuple[float, ...], tuple[str, ...]):
        return isinstance(value, list) and all(_fits(item, get_args(kind)[0]) for item in value)
    if kind == tuple[float, float]:
        return isinstance(value, list) and len(value) == 2 and all(_fits(item, float) for item in value)
    if kind == dict[str, Any]:
        return isinstance(value, dict) and all(_fits(name, str) and _is_plain(item) for name, item in value.items())
    return kind is bool and isinstance(value, bool)


def is_text(value: str) -> bool:
    """Whether a TOML file can hold it; bytes of the command line that are no text arrive as lone surrogates."""
    return not_text(value) is None


def is_for_a_shell(path: str) -> bool:
    """Whether a path begins with a `~` that a shell has left as it is, as after `=`; a folder may be called so."""
    return bool(re.match(r"~[A-Za-z0-9_.-]*/", path))


def _is_plain(value: object) -> bool:
    """Whether an option of the dense optimizer is one that `to_toml` can write back; dates are not."""
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return any(_fits(value, kind) for kind in (bool, int, float, str, dict[str, Any]))


def is_default(value: object, kind: object) -> bool:
    """Whether a default is what TOML would give for it; NumPy's numbers and enumerations are not."""
    items = value if isinstance(value, tuple) else (value,)
    if any(type(item) not in (bool, int, float, str, dict) for item in items):
        return False
    return _fits(_widened(list(value) if isinstance(value, tuple) else value, kind), kind)


def written_value(key: str, written: str, kind: object, source: str) -> object:
    """The value that the text of an override or an option stands for, not yet checked against its type.

    Raises:
        ConfigError: it is not TOML, or more than one value.
    """
    quoted = written.startswith(('"', "'"))
    if kind is str and not quoted:
        return written  # a folder named 2024 or true is a folder
    try:
        document = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError) as error:
        if quoted or written.startswith(("[", "{")):
            raise ConfigError(f"{source}: {key} = {written}: is not TOML: {error}; close what was opened") from None
        return written
    if len(document) > 1:
        raise ConfigError(f"{source}: {key} = {written!r}: holds more than one value; write one setting an override")
    return document["value"]


def chosen_names(patterns: Sequence[str], names: Sequence[str], key: str) -> list[str]:
    """The names that match one of the patterns at least, in the order of `names`.

    Args:
        patterns: names, in which `*` stands for any characters.
        names: all names that there are.
        key: of the setting, for messages.

    Raises:
        ConfigError: a pattern matches none of them.
    """
    matching = {pattern: re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL) for pattern in patterns}
    for pattern, words in matching.items():
        if not any(map(words.fullmatch, names)):
            shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
            raise ConfigError(f"{key} = {list(patterns)!r}: {pattern!r} matches none of {shown}")
    return [name for name in names if any(words.fullmatch(name) for words in matching.values())]


def toml_value(value: object) -> str:
    """Write a boolean, number, string, list or table as TOML on one line.

    Raises:
        TypeError: it is something else.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            # TOML's basic strings are JSON strings, except that TOML wants the delete character escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case list() | tuple():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case dict():
            pairs = (f"{_toml_key(key)} = {toml_value(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
    raise TypeError(f"{value!r} cannot be written as TOML: use booleans, numbers, strings, lists and tables")


def _toml_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else toml_value(key)
