"""JSON is read as a dataclass, and whatever does not fit is refused with file, field, value and cure."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import CheckpointError, DataError
from bagpipe_hpc.storage.checked_json import OPTIONAL, Count, FieldError, FileName, Integer, Positive, Sha256, read_json

SOURCE = Path("some.json")


@dataclass(frozen=True)
class Part:
    name: str
    rows: Positive = 7

    def __post_init__(self) -> None:
        if self.rows == 13:
            raise FieldError("rows", "is 13, which brings bad luck")


@dataclass(frozen=True)
class Whole:
    version: Count
    rate: float
    done: bool
    parts: tuple[Part, ...]
    widths: tuple[Count, ...]
    options: dict[str, Any]
    before: Part | None
    shift: Integer
    note: str = field(default="", metadata=OPTIONAL)


GOOD: dict[str, Any] = {
    "version": 1,
    "rate": 0.5,
    "done": True,
    "parts": [{"name": "a", "rows": 1}],
    "widths": [3, 0],
    "options": {"any": [None, {"thing": 1}]},
    "before": None,
    "shift": -5,
}


def test_what_fits_is_read() -> None:
    read = read_json(Whole, json.dumps(GOOD), SOURCE)
    assert read == Whole(1, 0.5, True, (Part("a", 1),), (3, 0), {"any": [None, {"thing": 1}]}, None, -5)
    before = read_json(Whole, json.dumps(GOOD | {"before": {"name": "b", "rows": 2}, "note": "x"}), SOURCE)
    assert (before.before, before.note) == (Part("b", 2), "x")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": True}, "version is True instead of an integer"),
        ({"version": 1.0}, "version is 1.0 instead of an integer"),
        ({"version": -1}, "version is -1 instead of an integer from 0 to 2 ** 63 - 1"),
        ({"version": 1 << 63}, "version is 9223372036854775808 instead of an integer from 0 to 2 ** 63 - 1"),
        ({"shift": -(1 << 63) - 1}, "shift is -9223372036854775809 instead of an integer of 64 bits"),
        ({"rate": 1}, "rate is 1 instead of a number with a point"),
        ({"done": 1}, "done is 1 instead of true or false"),
        ({"parts": {}}, "parts is {} instead of a list"),
        ({"parts": [3]}, "parts[0] is 3 instead of an object"),
        ({"parts": [{"name": "a", "rows": 1}, {"name": 7, "rows": 1}]}, "parts[1].name is 7 instead of a string"),
        ({"parts": [{"name": "a", "rows": 0}]}, "parts[0].rows is 0 instead of an integer from 1 to 2 ** 63 - 1"),
        ({"parts": [{"name": "a"}]}, "parts[0].rows is missing"),
        ({"parts": [{"name": "a", "rows": 13}]}, "parts[0].rows is 13, which brings bad luck"),
        ({"parts": [{"name": "a", "rows": 1, "x": 2}]}, "parts[0].x is unknown, with the value 2"),
        ({"widths": [1, "2"]}, "widths[1] is '2' instead of an integer"),
        ({"options": []}, "options is [] instead of an object"),
        ({"before": 3}, "before is 3 instead of an object"),
        ({"note": None}, "note is None instead of a string"),
        ({"surprise": 1}, "surprise is unknown, with the value 1"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_value(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError) as raised:
        read_json(Whole, json.dumps(GOOD | change), SOURCE)
    assert str(raised.value) == f"some.json: {problem}; it is damaged or was not written by bagpipe; write it again"


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_field_is_named(name: str) -> None:
    text = json.dumps({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(CheckpointError, match=f"^some.json: {name} is missing; go home$"):
        read_json(Whole, text, SOURCE, CheckpointError, "go home")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("9" * 5000, "is no JSON"),
        ('{"rate": NaN}', "is no JSON .NaN is no JSON number"),
        ('{"rate": -Infinity}', "is no JSON .-Infinity is no JSON number"),
        ("[]", r"the file is \[\] instead of an object"),
        ('{"options": {"a": 1, "a": 1}}', "'a' is given twice in one object"),
    ],
)
def test_what_is_no_object_is_refused(text: str, problem: str) -> None:
    with pytest.raises(DataError, match=f"^some.json: {problem}") as raised:
        read_json(Whole, text, SOURCE)
    assert len(str(raised.value)) < 500


@dataclass(frozen=True)
class Names:
    file: FileName
    sha256: Sha256


@pytest.mark.parametrize("file", ["", ".", "..", "a/b", "a\\b", "C:x", "a\0", "\x1b[2J"])
def test_names_that_lead_elsewhere(file: str) -> None:
    with pytest.raises(DataError, match=r"file is .* instead of the name of a file in the same folder"):
        read_json(Names, json.dumps({"file": file, "sha256": "0" * 64}), SOURCE)


@pytest.mark.parametrize("digest", ["0" * 63, "A" * 64, "0" * 64 + "\n", "g" * 64])
def test_what_is_no_checksum(digest: str) -> None:
    with pytest.raises(DataError, match=r"sha256 is .* instead of 64 lower-case hexadecimal digits"):
        read_json(Names, json.dumps({"file": "a", "sha256": digest}), SOURCE)
