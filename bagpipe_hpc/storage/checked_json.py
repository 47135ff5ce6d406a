"""JSON files that a stranger may have written, read as frozen dataclasses: annotations say what each field may hold.

A field is an `int`, `float`, `str`, `bool`, `dict[str, Any]`, another dataclass, a `tuple` of one of these, or one of
these `| None`. `Annotated[..., Must(...)]` narrows its values. A dataclass checks in `__post_init__` that its fields
fit each other, and raises `FieldError` where they do not.
"""

import dataclasses
import json
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from bagpipe_hpc.errors import BagpipeError, DataError, FileError, read_small

_Read = TypeVar("_Read")
_WRITE_AGAIN = "it is damaged or was not written by bagpipe; write it again"
_KINDS = {int: "an integer", float: "a number with a point", str: "a string", bool: "true or false"}


class FieldError(Exception):
    """A field of an object has a value that does not fit the other fields.

    Attributes:
        field: its name; a nested field is named by its path, such as `shards.train`.
        problem: what is wrong with it, worded to follow the name: `is not the sum of ...`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


@dataclass(frozen=True)
class Must:
    """What a value must be.

    Attributes:
        holds: tells whether a value of the right type is what it must be.
        what: the same in words, which follow `is 7 instead of` in messages.
    """

    holds: Callable[[Any], bool]
    what: str


def is_file_name(name: str) -> bool:
    """Whether a name stays inside its folder and has printable characters alone."""
    leads_out = name in ("", ".", "..") or any(character in name for character in "/\\") or ":" in name[:2]
    return not leads_out and name.isprintable()


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


OPTIONAL = {"optional": True}
"""Metadata of a field that may be left out; it has a default."""
Integer = Annotated[int, Must(lambda value: -(1 << 63) <= value < 1 << 63, "an integer of 64 bits")]
Count = Annotated[int, Must(lambda value: 0 <= value < 1 << 63, "an integer from 0 to 2 ** 63 - 1")]
Positive = Annotated[int, Must(lambda value: 1 <= value < 1 << 63, "an integer from 1 to 2 ** 63 - 1")]
FileName = Annotated[str, Must(is_file_name, "the name of a file in the same folder")]
Sha256 = Annotated[str, Must(_is_sha256, "64 lower-case hexadecimal digits")]


@dataclass(frozen=True)
class FileInfo:
    """A file that a manifest lists, as it was written.

    Attributes:
        file: its name in the folder of the manifest.
        bytes: its size.
        sha256: checksum of its contents.
    """

    file: FileName
    bytes: Positive
    sha256: Sha256


def load_json(
    kind: type[_Read],
    path: Path,
    most_bytes: int,
    error: type[BagpipeError] = DataError,
    cure: str = _WRITE_AGAIN,
) -> _Read:
    """Read a file as a dataclass.

    Args:
        kind: a frozen dataclass, as for `read_json`.
        path: the file.
        most_bytes: a file that has more is refused.
        error: what to raise.
        cure: what a user can do, for messages.

    Raises:
        BagpipeError: `error`, as by `read_json`, or if it is no file, has more bytes, or is no UTF-8 text.
        OSError: the system refuses the file.
    """
    try:
        text = read_small(path, most_bytes)
    except FileError as problem:
        raise error(str(problem)) from None
    except UnicodeDecodeError as problem:
        raise error(f"{path}: is no UTF-8 text ({problem}); {cure}") from None
    return read_json(kind, text, path, error, cure)


def read_json(
    kind: type[_Read],
    text: str,
    source: Path,
    error: type[BagpipeError] = DataError,
    cure: str = _WRITE_AGAIN,
) -> _Read:
    """Read a JSON object as a dataclass. Fields are checked in the order of their declarations.

    Args:
        kind: a frozen dataclass; every field must be given but those with the metadata `OPTIONAL`.
        text: the file's contents.
        source: the file, for messages.
        error: what to raise.
        cure: what a user can do, for messages.

    Raises:
        BagpipeError: `error`, if the text is no JSON (NaN is none), names a field twice in one object, or if a field is
            missing, unknown, of the wrong type (true is no integer) or of a value that it cannot have. It names file,
            field, value and cure.
    """

    def refuse(problem: str) -> NoReturn:
        raise error(f"{source}: {problem}; {cure}")

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
            refuse(f"{name!r:.80} is given twice in one object")
        return fields

    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON number")

    try:
        document = json.loads(text, object_pairs_hook=distinct, parse_constant=no_number)
    except (ValueError, RecursionError) as problem:
        raise error(f"{source}: is no JSON ({problem}); {cure}") from problem
    try:
        read: _Read = _read(kind, document, "")
    except FieldError as problem:
        refuse(str(problem))
    return read


def _read(kind: Any, value: Any, place: str) -> Any:
    """Check a value, and make of it what its annotation says.

    `place` names it in messages, as in `shards.train[0].rows`; it is empty for the whole file.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        read = _read(parts[0], value, place)
        for must in parts[1:]:
            if not must.holds(read):
                _refuse(place, value, must.what)
        return read
    if origin in (types.UnionType, Union):  # `Annotated[...] | None` is a `Union`
        return None if value is None else _read(parts[0], value, place)
    if origin is tuple:
        if type(value) is not list:
            _refuse(place, value, "a list")
        return tuple(_read(parts[0], item, f"{place}[{number}]") for number, item in enumerate(value))
    if dataclasses.is_dataclass(kind) or origin is dict:
        if type(value) is not dict:
            _refuse(place, value, "an object")
        return value if origin is dict else _read_object(kind, value, place)
    if type(value) is not kind:
        _refuse(place, value, _KINDS[kind])
    return value


def _read_object(kind: Any, values: dict[str, Any], place: str) -> Any:
    prefix = f"{place}." if place else ""
    annotations = get_type_hints(kind, include_extras=True)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in values:
            given[field.name] = _read(annotations[field.name], values[field.name], prefix + field.name)
        elif not field.metadata.get("optional"):
            raise FieldError(prefix + field.name, "is missing")
    for name in sorted(values.keys() - annotations.keys()):
        raise FieldError(f"{prefix}{name:.80}", f"is unknown, with the value {values[name]!r:.80}")
    try:
        return kind(**given)
    except FieldError as problem:
        raise FieldError(prefix + problem.field, problem.problem) from None


def _refuse(place: str, value: object, what: str) -> NoReturn:
    raise FieldError(place or "the file", f"is {value!r:.80} instead of {what}")
