"""JSON files that a stranger may have written: each field is taken out with its type and range checked."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from bagpipe_hpc.errors import DataError

_CURE = "it is damaged or was not written by bagpipe; write it again"


def parse_json(text: str, source: Path) -> "JsonFields":
    """Parse a JSON object.

    Args:
        text: the file's contents.
        source: the file, for messages.

    Raises:
        DataError: it is no JSON, or no object, or an object in it has two fields of one name.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
            _refuse(source, f"{name!r:.80}", "is given twice in one object")
        return fields

    try:
        parsed = json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: is no JSON ({error}); {_CURE}") from error
    return JsonFields(source, "", parsed)


def _refuse(source: Path, field: str, problem: str) -> NoReturn:
    raise DataError(f"{source}: {field} {problem}; {_CURE}")


class JsonFields:
    """A JSON object whose fields are taken out one by one, each with its type checked.

    Args:
        source: file that it came from, for messages.
        place: what comes before a field's name in messages, such as `shards.`.
        values: what was parsed.
    """

    def __init__(self, source: Path, place: str, values: object) -> None:
        if not isinstance(values, dict):
            _refuse(source, place.rstrip(".") or "the file", f"is {values!r:.80} instead of an object")
        self.values: dict[str, Any] = values
        self._source = source
        self._place = place
        self._taken: set[str] = set()

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise a `DataError` about a field."""
        _refuse(self._source, self._place + name, problem)

    def refuse_unknown(self) -> None:
        """Raise a `DataError` if a field was not taken."""
        for name in self.values.keys() - self._taken:
            self.refuse(name, "is unknown")

    def value(self, name: str, kind: type) -> Any:
        """A field of exactly this type: true is no integer."""
        self._taken.add(name)
        if name not in self.values:
            self.refuse(name, "is missing")
        value = self.values[name]
        if type(value) is not kind:
            self.refuse(name, f"is {value!r:.80} instead of a value of type {kind.__name__}")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """An integer of `least` up to 2 ** 63 - 1."""
        value: int = self.value(name, int)
        if not least <= value < 1 << 63:
            self.refuse(name, f"is {value!r:.80} instead of an integer from {least} to 2 ** 63 - 1")
        return value

    def text(self, name: str) -> str:
        """A string."""
        value: str = self.value(name, str)
        return value

    def file_name(self, name: str) -> str:
        """The name of a file in the same folder, with no way out of it."""
        value = self.text(name)
        leads_out = value in ("", ".", "..") or any(character in value for character in "/\\") or ":" in value[:2]
        if leads_out or not value.isprintable():
            self.refuse(name, f"is {value!r:.80} instead of the name of a file in the same folder")
        return value

    def sha256(self, name: str) -> str:
        """A checksum of 64 lower-case hexadecimal digits."""
        value = self.text(name)
        if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
            self.refuse(name, f"is {value!r:.80} instead of 64 lower-case hexadecimal digits")
        return value

    def fields(self, name: str) -> "JsonFields":
        """An object."""
        return JsonFields(self._source, f"{self._place}{name}.", self.value(name, dict))

    def items(self, name: str) -> list["JsonFields"]:
        """A list of objects."""
        values: list[object] = self.value(name, list)
        return [JsonFields(self._source, f"{self._place}{name}[{i}].", value) for i, value in enumerate(values)]

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        values: list[object] = self.value(name, list)
        for number, value in enumerate(values):
            if not isinstance(value, str):
                self.refuse(f"{name}[{number}]", f"is {value!r:.80} instead of a string")
        return [str(value) for value in values]
