"""What a column of a sample seems to be, by its name and content.

Shapes: `n` rows of the sample.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bagpipe_hpc.terminal import counted
from data_prep.formats.columns import Column, Dense, Sparse, Time, Values
from data_prep.formats.fields import problem
from data_prep.schema.columns import (
    CategoricalColumn,
    LabelColumn,
    MultiHotColumn,
    NumericColumn,
    SchemaColumn,
    SequenceColumn,
    TimestampColumn,
    UnusedColumn,
)
from data_prep.schema.document import is_table_name
from data_prep.schema.proposal.list_texts import find_list
from data_prep.schema.proposal.parquet_sample import is_time, refusal
from data_prep.schema.proposal.sample import Sample, is_number

_TIMES = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%y%m%d%H",
)
LABEL_NAMES = re.compile(r"label|click(ed)?|target|y|is_click|conver(ted|sion)|clk|buy|bought", re.IGNORECASE)
"""Names that labels often have."""
_TIME_NAMES = re.compile(r".*(time|date|hour|day|_at|timestamp|ts)$", re.IGNORECASE)
_SEQUENCE_NAMES = re.compile(r".*(hist|seq|seen|last|prev(?!iew)|recent|visited)", re.IGNORECASE)
_WHOLE = re.compile(r"-?[0-9]+")
_FEW_NUMBERS = 50
"""Integers with fewer distinct values than this are taken for categories."""
_OF_TIMES = "a time; kept in the shards, and no feature by itself"
_RATING_NAMES = re.compile(r"rating|score|stars", re.IGNORECASE)
_SECONDS = (10**9, 2 * 10**9)
"""Integers in this range, from 2001 to 2033 in seconds, may be times."""


@dataclass(frozen=True)
class Guess:
    """What a column seems to be.

    Attributes:
        column: its description.
        why: the reason in a few words, for a comment.
    """

    column: SchemaColumn
    why: str


def readable_guess(sample: Sample, number: int) -> Guess:
    """What a column seems to be, provided that `prepare` can read that from its Parquet type."""
    guess, name = _guess(sample, number), sample.names[number]
    if sample.is_text or not (why := refusal(sample.arrays[name], guess.column, sample.rules.missing)):
        return guess
    return Guess(UnusedColumn(name=name), f"no kind of column fits: {why}")


def _guess(sample: Sample, number: int) -> Guess:
    """What a column seems to be, from its name and content."""
    name, fields = sample.names[number], sample.columns[number]
    present = [value for value in fields if value is not None]
    distinct = set(present)
    share = 1 - len(present) / max(1, len(fields))
    told = f"{counted(len(distinct), 'value')} in {counted(len(fields), 'row')}"
    told += f", {share:.0%} missing" if share else ""
    if not distinct:
        return Guess(UnusedColumn(name=name), "all of it is missing here, or it holds no plain values")
    if name in sample.arrays and is_time(sample.arrays[name].type):
        if share:
            return Guess(UnusedColumn(name=name), f"a time, which may not be missing: {share:.0%} are")
        return Guess(TimestampColumn(name=name), _OF_TIMES)
    if name in sample.lists:
        items = [item for value in present for item in value.split("|") if item]
        return _list_guess(name, items, "|", told, weights=":" if name in sample.weighted else None)
    if len(distinct) == 2 and not share:
        if distinct == {"0", "1"}:
            return Guess(LabelColumn(name=name), "0 and 1")
        if any(map(LABEL_NAMES.fullmatch, [name])):
            positive = max(distinct, key=lambda value: (value.lower() in ("yes", "true", "1", "y", "click"), value))
            return Guess(LabelColumn(name=name, positive=(positive,)), f"two values: {' and '.join(sorted(distinct))}")
    if not is_table_name(name):
        return Guess(UnusedColumn(name=name), "a feature may not have this name; rename the column to use it")
    return _time_guess(name, present, sample) or _value_guess(name, present, distinct, told, sample)


def rating_guess(sample: Sample, number: int, guess: Guess) -> Guess:
    """A column of ratings as a label: the upper fifth of their scale is 1."""
    name, fields = sample.names[number], sample.columns[number]
    present = [value for value in fields if value is not None]
    if len(present) < len(fields) or not _RATING_NAMES.fullmatch(name) or not _all(Dense(""), present):
        return guess
    best = max(map(float, present))
    return Guess(LabelColumn(name=name, at_least=round(0.8 * best, 2)), f"ratings of up to {best:g}")


def _time_guess(name: str, present: Sequence[str], sample: Sample) -> Guess | None:
    """The guess that a column holds times; None if it does not seem to. Ascending numbers alone are no sign of it."""
    named = bool(_TIME_NAMES.fullmatch(name))
    if len(present) < sample.rows:  # a time may not be missing
        return None
    for written in _TIMES:
        if (named or not is_number(present[0])) and _all(Time("", written), present):
            return Guess(TimestampColumn(name=name, format=written), _OF_TIMES)
    if named and _all(Sparse("", Values.INTEGER), present):
        numbers = [int(value) for value in present]
        for unit, factor in (("seconds", 1), ("milliseconds", 1000)):
            if _SECONDS[0] * factor <= min(numbers) and max(numbers) <= _SECONDS[1] * factor:
                return Guess(TimestampColumn(name=name, format=unit), _OF_TIMES)
    return None


def _value_guess(name: str, present: Sequence[str], distinct: set[str], told: str, sample: Sample) -> Guess:
    """A column of numbers, categories or lists."""
    if _all(Sparse("", Values.INTEGER), present):
        if len(distinct) <= _FEW_NUMBERS or _looks_like_ids(name, present):
            return Guess(CategoricalColumn(name=name, values="integer"), f"integers, {told}")
        spread = max(map(int, present)) > 100
        return Guess(
            NumericColumn(name=name, integer=True, log=spread), f"counts, {told}" if spread else f"integers, {told}"
        )
    is_float = name in sample.arrays and pa.types.is_floating(sample.arrays[name].type)
    if not is_float and all(map(_WHOLE.fullmatch, present)):
        return Guess(CategoricalColumn(name=name), f"whole numbers beyond 64 bits with a sign, as texts, {told}")
    if is_float or _all(Dense(""), present):
        return Guess(NumericColumn(name=name, standardise=True), f"decimal numbers, {told}")
    if len({len(value) for value in present}) == 1 and len(present[0]) == 8 and _all(Sparse("", Values.HEX), present):
        return Guess(CategoricalColumn(name=name, values="hex"), f"8 hexadecimal digits, {told}")
    taken = {sample.rules.character} if sample.is_text else set()
    if found := find_list(present, taken):
        return _list_guess(name, found.values, found.separator, told, found.weights)
    if len(distinct) > 0.95 * len(present) and len(present) > 100:
        return Guess(UnusedColumn(name=name), f"nearly every value occurs once: {told}")
    return Guess(CategoricalColumn(name=name), f"texts, {told}")


def _looks_like_ids(name: str, present: Sequence[str]) -> bool:
    return bool(re.search(r"(^|_)(id|user|item|ad|film|movie|site|app|device|product|query)s?($|_)", name.lower())) or (
        min(map(int, present)) >= 10**6
    )


def _list_guess(name: str, items: Sequence[str], separator: str, told: str, weights: str | None = None) -> Guess:
    values = "integer" if items and _all(Sparse("", Values.INTEGER), items) else "text"
    kind: type[MultiHotColumn] = SequenceColumn if _SEQUENCE_NAMES.match(name) else MultiHotColumn
    why = "in order, oldest first" if kind is SequenceColumn else "in no order"
    told = f"{told}; each value with a weight" if weights else told
    return Guess(kind(name=name, values=values, separator=separator, weights=weights), f"lists, {why}; {told}")


def _all(kind: Column, values: Sequence[str]) -> bool:
    """Whether all fields can be of a kind."""
    return all(problem(kind, value.encode()) is None for value in values)
