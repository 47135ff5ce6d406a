"""`bagpipe schema`: proposes a schema for files from a sample of one, as TOML with comments that say why.

Shapes: `n` rows of the sample.
"""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.terminal import counted
from data_prep.formats.fields import problem
from data_prep.formats.layout import Column, Dense, Sparse, Time, Values, split_quoted
from data_prep.input_files import find_sources
from data_prep.parquet_blocks import column_types, is_parquet, read_rows
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
from data_prep.schema.document import FileRules, Schema, column_toml, is_table_name
from data_prep.schema.list_texts import find_list
from data_prep.schema.parquet_fields import has_weights
from data_prep.schema.parquet_sample import is_list, is_time, refusal, texts_of
from data_prep.text_blocks import BYTE_ORDER_MARK, first_bytes

SAMPLE_BYTES = 4 << 20
SAMPLE_ROWS = 20_000
_SEPARATORS = ("\t", ",", ";", "|", " ")
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe", " ": "space"}
_MISSING = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "\\N")
_TIMES = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%y%m%d%H",
)
_LABEL_NAMES = re.compile(r"label|click(ed)?|target|y|is_click|conver(ted|sion)|clk|buy|bought", re.IGNORECASE)
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
class _Guess:
    """What a column seems to be.

    Attributes:
        column: its description.
        why: the reason in a few words, for a comment.
    """

    column: SchemaColumn
    why: str


@dataclass(frozen=True)
class _Sample:
    """The beginning of a file.

    Attributes:
        rules: how it is written.
        names: names of its columns.
        columns: their fields as text, `[n]` each; None where a field is missing.
        lists: names of the columns that hold lists.
        weighted: those of `lists` whose values have weights.
        arrays: for a Parquet file, the columns by their names; empty for text.
    """

    rules: FileRules
    names: tuple[str, ...]
    columns: tuple[Sequence[str | None], ...]
    lists: frozenset[str] = frozenset()
    weighted: frozenset[str] = frozenset()
    arrays: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether the file is text."""
        return not self.arrays

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0]) if self.columns else 0


def propose_schema(name: str) -> str:
    """A schema for files like one, as TOML.

    Args:
        name: name of a text file, plain or compressed, or of a Parquet file.

    Raises:
        DataError: the file is missing, empty, damaged, or not a table.
    """
    sources = find_sources([name])
    if len(sources) > 1:
        raise DataError(f"{name}: finds {len(sources)} files; name one file, whose beginning is looked at")
    source = sources[0]
    sample = _parquet_sample(source) if is_parquet(source) else _text_sample(source)
    named = [number for number, name in enumerate(sample.names) if name and name.isprintable()]
    if not sample.rules.header or not sample.is_text:
        named = list(range(len(sample.names)))
    guesses = [_readable_guess(sample, number) for number in named]
    if not any(isinstance(guess.column, LabelColumn) for guess in guesses):
        guesses = [_rating_guess(sample, number, guess) for number, guess in zip(named, guesses, strict=True)]
    if not any(isinstance(guess.column, LabelColumn) for guess in guesses):
        raise DataError(
            f"{source}: no column holds two values, or ratings, so none can be the label; write the schema by hand, "
            'with kind = "label" and positive or at_least'
        )
    guesses = _one_time(_one_label(guesses, sample))
    if not any(isinstance(guess.column, CategoricalColumn | MultiHotColumn) for guess in guesses):
        guesses = _with_a_category(guesses, source)
    try:
        Schema(sample.rules, tuple(guess.column for guess in guesses))
    except SettingError as error:
        raise DataError(
            f"{source}: its columns make no schema: {error}; rename them, or write the schema by hand"
        ) from None
    return "\n".join(_toml(source, sample, guesses)) + "\n"


def _toml(source: Path, sample: _Sample, guesses: Sequence[_Guess]) -> list[str]:
    rules = sample.rules
    name = "".join(letter if letter.isprintable() else "?" for letter in str(source))
    first = counted(sample.rows, "row")
    lines = [
        f"# Proposed from the first {first} of {name}: look at every line, above all at the label.",
        f"# Then: bagpipe prepare --schema THIS.toml --input {shlex.quote(name)} --output shards",
    ]
    if sample.is_text:
        lines += [
            "",
            "[file]",
            f"separator = {toml_value(rules.separator)}",
            f"header = {toml_value(rules.header)}"
            + ("" if rules.header else "  # fields are in the order of [columns]"),
            f"quoted = {toml_value(rules.quoted)}",
        ]
    elif rules.missing:
        lines += ["", "[file]"]
    if rules.missing:
        lines += [f"missing = {toml_value(list(rules.missing))}  # besides empty fields"]
    lines += ["", "[columns]"]
    return lines + [f"{column_toml(guess.column)}  # {guess.why}" for guess in guesses]


def _text_sample(source: Path) -> _Sample:
    """The first rows of a text."""
    start = first_bytes(source, SAMPLE_BYTES).removeprefix(BYTE_ORDER_MARK)
    text = start.decode(errors="replace")
    if "\0" in text[:4096]:
        raise DataError(f"{source}: holds zero bytes, so it is no text; name a CSV, TSV or Parquet file")
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line]
    if len(start) == SAMPLE_BYTES:
        lines = lines[:-1]  # the last line is cut off
    lines = lines[: SAMPLE_ROWS + 1]
    if len(start) == SAMPLE_BYTES and len(lines) < 2:
        raise DataError(
            f"{source}: has hardly an end of line in its first {SAMPLE_BYTES >> 20} MiB; is it a table of a row a line?"
        )
    if not lines:
        raise DataError(f"{source}: holds no row; name a file with rows")
    separator = max(_SEPARATORS, key=lambda found: _regularity(lines, found))
    if _regularity(lines, separator) <= 0:
        tried = ", ".join(_NAMES.values())
        raise DataError(
            f"{source}: no separator ({tried}) gives nearly all lines as many fields, two or more; is it a table of a "
            "row a line?"
        )
    quoted = any('"' in line for line in lines)
    rows = [split_quoted(line, separator) if quoted else line.split(separator) for line in lines]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    if twice := _named_twice(rows):
        raise DataError(f"{source}:1: names the column {twice!r:.80} twice; give each column its own name")
    header = _is_header(rows)
    names = rows[0] if header else [f"c{number}" for number in range(1, width + 1)]
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{source}: has a header and no row; name a file with rows")
    missing = tuple(word for word in _MISSING if separator not in word and any(word in row for row in body))
    rules = FileRules(separator=_NAMES[separator], header=header, quoted=quoted or separator == ",", missing=missing)
    absent = {"", *missing}
    columns = tuple(tuple(None if row[at] in absent else row[at] for row in body) for at in range(width))
    return _Sample(rules, tuple(names), columns)


def _regularity(lines: Sequence[str], separator: str) -> float:
    """How likely a character is the separator: the fields of a line, if nearly all lines have as many; else 0."""
    counts = Counter(len(split_quoted(line, separator)) for line in lines[:200])
    fields, often = counts.most_common(1)[0]
    return fields if fields > 1 and often >= 0.9 * sum(counts.values()) else 0


def _named_twice(rows: Sequence[Sequence[str]]) -> str | None:
    """A name that comes twice in a first row that would otherwise be a header."""
    counts = Counter(rows[0])
    numbered = [f"{name} {place}" if counts[name] > 1 else name for place, name in enumerate(rows[0])]
    found = next((name for name, count in counts.items() if count > 1 and name), None)
    seen = {field for row in rows[1:1000] for field in row}
    is_header = found not in seen and not _is_number(found or "0") and _is_header([numbered, *rows[1:]])
    return found if is_header else None


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: words that differ, at least one above a column of numbers."""
    first, others = rows[0], rows[1:1000]
    if len(set(first)) < len(first) or any(not name or _is_number(name) for name in first):
        return False
    if not others:
        return True
    numeric = [all(not row[at] or _is_number(row[at]) for row in others) for at in range(len(first))]
    unseen = sum(first[at] not in {row[at] for row in others} for at in range(len(first)))
    return any(numeric) or unseen == len(first)


def _parquet_sample(source: Path) -> _Sample:
    types = column_types(source)
    block = next(read_rows(source, 0, tuple(types), 0, SAMPLE_ROWS), None)
    if block is None:
        raise DataError(f"{source}: holds no row; name a file with rows")
    lists = frozenset(name for name, found in types.items() if is_list(found))
    arrays = {name: block.columns.column(name) for name in types}
    columns = tuple(map(texts_of, arrays.values()))
    values = {value for column in columns for value in column}
    missing = tuple(word for word in _MISSING if word in values)
    columns = tuple(tuple(None if value in (*missing, "") else value for value in column) for column in columns)
    weighted = frozenset(name for name in lists if has_weights(types[name]))
    rules = FileRules(missing=missing)
    return _Sample(rules, tuple(types), columns, lists=lists, weighted=weighted, arrays=arrays)


def _is_number(text: str) -> bool:
    return problem(Dense(""), text.encode()) is None


def _all(kind: Column, values: Sequence[str]) -> bool:
    """Whether all fields can be of a kind."""
    return all(problem(kind, value.encode()) is None for value in values)


def _readable_guess(sample: _Sample, number: int) -> _Guess:
    """What a column seems to be, provided that `prepare` can read that from its Parquet type."""
    guess, name = _guess(sample, number), sample.names[number]
    if sample.is_text or not (why := refusal(sample.arrays[name], guess.column, sample.rules.missing)):
        return guess
    return _Guess(UnusedColumn(name=name), f"no kind of column fits: {why}")


def _guess(sample: _Sample, number: int) -> _Guess:
    """What a column seems to be, from its name and content."""
    name, fields = sample.names[number], sample.columns[number]
    present = [value for value in fields if value is not None]
    distinct = set(present)
    share = 1 - len(present) / max(1, len(fields))
    told = f"{counted(len(distinct), 'value')} in {counted(len(fields), 'row')}"
    told += f", {share:.0%} missing" if share else ""
    if not distinct:
        return _Guess(UnusedColumn(name=name), "all of it is missing here, or it holds no plain values")
    if name in sample.arrays and is_time(sample.arrays[name].type):
        if share:
            return _Guess(UnusedColumn(name=name), f"a time, which may not be missing: {share:.0%} are")
        return _Guess(TimestampColumn(name=name), _OF_TIMES)
    if name in sample.lists:
        items = [item for value in present for item in value.split("|") if item]
        return _list_guess(name, items, "|", told, weights=":" if name in sample.weighted else None)
    if len(distinct) == 2 and not share:
        if distinct == {"0", "1"}:
            return _Guess(LabelColumn(name=name), "0 and 1")
        if any(map(_LABEL_NAMES.fullmatch, [name])):
            positive = max(distinct, key=lambda value: (value.lower() in ("yes", "true", "1", "y", "click"), value))
            return _Guess(LabelColumn(name=name, positive=(positive,)), f"two values: {' and '.join(sorted(distinct))}")
    if not is_table_name(name):
        return _Guess(UnusedColumn(name=name), "a feature may not have this name; rename the column to use it")
    return _time_guess(name, present, sample) or _value_guess(name, present, distinct, told, sample)


def _rating_guess(sample: _Sample, number: int, guess: _Guess) -> _Guess:
    """A column of ratings as a label: the upper fifth of their scale is 1."""
    name, fields = sample.names[number], sample.columns[number]
    present = [value for value in fields if value is not None]
    if len(present) < len(fields) or not _RATING_NAMES.fullmatch(name) or not _all(Dense(""), present):
        return guess
    best = max(map(float, present))
    return _Guess(LabelColumn(name=name, at_least=round(0.8 * best, 2)), f"ratings of up to {best:g}")


def _time_guess(name: str, present: Sequence[str], sample: _Sample) -> _Guess | None:
    """The guess that a column holds times; None if it does not seem to. Ascending numbers alone are no sign of it."""
    named = bool(_TIME_NAMES.fullmatch(name))
    if len(present) < sample.rows:  # a time may not be missing
        return None
    for written in _TIMES:
        if (named or not _is_number(present[0])) and _all(Time("", written), present):
            return _Guess(TimestampColumn(name=name, format=written), _OF_TIMES)
    if named and _all(Sparse("", Values.INTEGER), present):
        numbers = [int(value) for value in present]
        for unit, factor in (("seconds", 1), ("milliseconds", 1000)):
            if _SECONDS[0] * factor <= min(numbers) and max(numbers) <= _SECONDS[1] * factor:
                return _Guess(TimestampColumn(name=name, format=unit), _OF_TIMES)
    return None


def _value_guess(name: str, present: Sequence[str], distinct: set[str], told: str, sample: _Sample) -> _Guess:
    """A column of numbers, categories or lists."""
    if _all(Sparse("", Values.INTEGER), present):
        if len(distinct) <= _FEW_NUMBERS or _looks_like_ids(name, present):
            return _Guess(CategoricalColumn(name=name, values="integer"), f"integers, {told}")
        spread = max(map(int, present)) > 100
        return _Guess(
            NumericColumn(name=name, integer=True, log=spread), f"counts, {told}" if spread else f"integers, {told}"
        )
    is_float = name in sample.arrays and pa.types.is_floating(sample.arrays[name].type)
    if not is_float and all(map(_WHOLE.fullmatch, present)):
        return _Guess(CategoricalColumn(name=name), f"whole numbers beyond 64 bits with a sign, as texts, {told}")
    if is_float or _all(Dense(""), present):
        return _Guess(NumericColumn(name=name, standardise=True), f"decimal numbers, {told}")
    if len({len(value) for value in present}) == 1 and len(present[0]) == 8 and _all(Sparse("", Values.HEX), present):
        return _Guess(CategoricalColumn(name=name, values="hex"), f"8 hexadecimal digits, {told}")
    taken = {sample.rules.character} if sample.is_text else set()
    if found := find_list(present, taken):
        return _list_guess(name, found.values, found.separator, told, found.weights)
    if len(distinct) > 0.95 * len(present) and len(present) > 100:
        return _Guess(UnusedColumn(name=name), f"nearly every value occurs once: {told}")
    return _Guess(CategoricalColumn(name=name), f"texts, {told}")


def _looks_like_ids(name: str, present: Sequence[str]) -> bool:
    return bool(re.search(r"(^|_)(id|user|item|ad|film|movie|site|app|device|product|query)s?($|_)", name.lower())) or (
        min(map(int, present)) >= 10**6
    )


def _list_guess(name: str, items: Sequence[str], separator: str, told: str, weights: str | None = None) -> _Guess:
    values = "integer" if items and _all(Sparse("", Values.INTEGER), items) else "text"
    kind: type[MultiHotColumn] = SequenceColumn if _SEQUENCE_NAMES.match(name) else MultiHotColumn
    why = "in order, oldest first" if kind is SequenceColumn else "in no order"
    told = f"{told}; each value with a weight" if weights else told
    return _Guess(kind(name=name, values=values, separator=separator, weights=weights), f"lists, {why}; {told}")


def _one_label(guesses: Sequence[_Guess], sample: _Sample) -> list[_Guess]:
    """Keep the likeliest label, chosen by its name, else the first one; others become categories."""
    labels = [guess for guess in guesses if isinstance(guess.column, LabelColumn)]
    chosen = next((guess for guess in labels if _LABEL_NAMES.fullmatch(guess.column.name)), labels[0])
    rows = sample.columns[sample.names.index(chosen.column.name)]
    found = []
    for guess in guesses:
        if guess is chosen:
            rate = sum(_is_positive(chosen.column, value) for value in rows) / max(1, len(rows))
            found.append(_Guess(guess.column, f"the label, it seems: {guess.why}, {rate:.1%} positive"))
        elif isinstance(guess.column, LabelColumn):
            values = "integer" if not guess.column.positive else "text"
            found.append(
                _Guess(CategoricalColumn(name=guess.column.name, values=values), f"{guess.why}; or another label")
            )
        else:
            found.append(guess)
    return found


def _one_time(guesses: Sequence[_Guess]) -> list[_Guess]:
    """Keep the first time, since a schema has only one; others are unused."""
    times = [guess for guess in guesses if isinstance(guess.column, TimestampColumn)]
    why = f"another time; a schema has one, which is {times[0].column.name} here" if times else ""
    return [_Guess(UnusedColumn(name=guess.column.name), why) if guess in times[1:] else guess for guess in guesses]


def _is_positive(label: SchemaColumn, value: str | None) -> bool:
    if not isinstance(label, LabelColumn) or value is None:
        return False
    return float(value) >= label.at_least if label.at_least is not None else value in (label.positive or ("1",))


def _with_a_category(guesses: Sequence[_Guess], source: Path) -> list[_Guess]:
    """Make a number a category if there is none, since a schema needs a table."""
    for number, guess in enumerate(guesses):
        if isinstance(guess.column, NumericColumn):
            values = "integer" if guess.column.integer else "decimal"
            column = CategoricalColumn(name=guess.column.name, values=values, quantiles=16)
            why = f"{guess.why}; in 16 intervals, as a model needs a table"
            return [*islice(guesses, number), _Guess(column, why), *guesses[number + 1 :]]
    raise DataError(f"{source}: has a label, and no column for an embedding table; write the schema by hand")
