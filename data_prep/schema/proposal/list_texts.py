"""Finds out whether the texts of a column are lists, with which separator, and whether their values have weights.

The rules, which docs/schema.md states, are about distinct texts: how often each of them occurs does not matter.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from data_prep.formats.columns import Sparse, SparseList, Values
from data_prep.formats.fields import problem

_STRONG, _WEAK = ("|", ";", "^"), (" ", ",")
"""Separators that hardly occur in names, and those that often do."""
_LEAST_SHARE = {True: 0.05, False: 0.3}
"""Least share of fields that must hold the separator, by whether it is a strong one."""
_FEW_TEXTS = 10
"""Fewer distinct texts than this are too few to accept a weak separator, or to reject a strong one."""
_WEIGHTS = (":", "=")
_TIME = re.compile(r"\d{1,2}:\d{2}")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")


@dataclass(frozen=True)
class FoundList:
    """How the lists of a column are written.

    Attributes:
        separator: the character between their pieces.
        weights: the character between the value and the weight of each piece; None where there are no weights.
        values: the values of all pieces of all fields, without weights.
    """

    separator: str
    weights: str | None
    values: tuple[str, ...]


def find_list(fields: Sequence[str], taken: Collection[str] = ()) -> FoundList | None:
    """How the fields of a column are written as lists; None where they are not lists.

    Args:
        fields: all fields that are not missing.
        taken: characters that already separate something else.
    """
    for separator in (*_STRONG, *_WEAK):
        holding = sum(separator in field for field in fields)
        if separator in taken or holding < _LEAST_SHARE[separator in _STRONG] * len(fields) or not holding:
            continue
        pieces = [piece for field in fields for piece in field.split(separator)]
        if not all(pieces):
            continue
        mark = _weights_of(pieces, separator)
        if mark is None and not _is_list(set(fields), separator):
            continue
        return FoundList(separator, mark, tuple(piece.partition(mark)[0] if mark else piece for piece in pieces))
    return None


def _weights_of(pieces: Sequence[str], separator: str) -> str | None:
    """The character between values and weights, if there is one; times of day do not count as values with weights."""
    for mark in _WEIGHTS:
        column = SparseList("", Values.TEXT, separator, weights=mark)
        fits = all(piece.count(mark) == 1 and problem(column, piece.encode()) is None for piece in pieces)
        if fits and not all(map(_TIME.fullmatch, pieces)):
            return mark
    return None


def _is_list(texts: set[str], separator: str) -> bool:
    """Whether the pieces of distinct texts are values of their own, and not parts of one value."""
    is_strong = separator in _STRONG
    if len(texts) < _FEW_TEXTS:
        return is_strong
    split = [text.split(separator) for text in texts]
    varies = len({len(parts) for parts in split}) > 1
    places: dict[str, list[int]] = {}
    for parts in split:
        for place, piece in enumerate(parts):
            places.setdefault(piece, []).append(place)
    repeated = [found for found in places.values() if len(found) > 1]
    moving = sum(len(set(found)) > 1 for found in repeated)
    if is_strong:
        return varies or moving > 0 or len(places) <= len(texts)
    if varies and all(problem(Sparse("", Values.INTEGER), piece.encode()) is None for piece in places):
        return not all(separator not in text or _THOUSANDS.fullmatch(text) for text in texts)
    return len(places) < len(texts) and 2 * moving >= len(repeated) > 0
