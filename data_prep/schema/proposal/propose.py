"""Proposes a schema, as TOML with comments that say why."""

import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.terminal import counted
from data_prep.inputs.files import find_sources
from data_prep.schema.columns import (
    CategoricalColumn,
    LabelColumn,
    MultiHotColumn,
    NumericColumn,
    SchemaColumn,
    TimestampColumn,
    UnusedColumn,
)
from data_prep.schema.document import Schema, column_toml
from data_prep.schema.proposal.guesses import LABEL_NAMES, Guess, rating_guess, readable_guess
from data_prep.schema.proposal.sample import Sample, read_sample


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
    sample = read_sample(source)
    named = [number for number, name in enumerate(sample.names) if name and name.isprintable()]
    if not sample.rules.header or not sample.is_text:
        named = list(range(len(sample.names)))
    guesses = [readable_guess(sample, number) for number in named]
    if not any(isinstance(guess.column, LabelColumn) for guess in guesses):
        guesses = [rating_guess(sample, number, guess) for number, guess in zip(named, guesses, strict=True)]
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


def _toml(source: Path, sample: Sample, guesses: Sequence[Guess]) -> list[str]:
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


def _one_label(guesses: Sequence[Guess], sample: Sample) -> list[Guess]:
    """Keep the likeliest label, chosen by its name, else the first one; others become categories."""
    labels = [guess for guess in guesses if isinstance(guess.column, LabelColumn)]
    chosen = next((guess for guess in labels if LABEL_NAMES.fullmatch(guess.column.name)), labels[0])
    rows = sample.columns[sample.names.index(chosen.column.name)]
    found = []
    for guess in guesses:
        if guess is chosen:
            rate = sum(_is_positive(chosen.column, value) for value in rows) / max(1, len(rows))
            found.append(Guess(guess.column, f"the label, it seems: {guess.why}, {rate:.1%} positive"))
        elif isinstance(guess.column, LabelColumn):
            values = "integer" if not guess.column.positive else "text"
            found.append(
                Guess(CategoricalColumn(name=guess.column.name, values=values), f"{guess.why}; or another label")
            )
        else:
            found.append(guess)
    return found


def _one_time(guesses: Sequence[Guess]) -> list[Guess]:
    """Keep the first time, since a schema has only one; others are unused."""
    times = [guess for guess in guesses if isinstance(guess.column, TimestampColumn)]
    why = f"another time; a schema has one, which is {times[0].column.name} here" if times else ""
    return [Guess(UnusedColumn(name=guess.column.name), why) if guess in times[1:] else guess for guess in guesses]


def _is_positive(label: SchemaColumn, value: str | None) -> bool:
    if not isinstance(label, LabelColumn) or value is None:
        return False
    return float(value) >= label.at_least if label.at_least is not None else value in (label.positive or ("1",))


def _with_a_category(guesses: Sequence[Guess], source: Path) -> list[Guess]:
    """Make a number a category if there is none, since a schema needs a table."""
    for number, guess in enumerate(guesses):
        if isinstance(guess.column, NumericColumn):
            values = "integer" if guess.column.integer else "decimal"
            column = CategoricalColumn(name=guess.column.name, values=values, quantiles=16)
            why = f"{guess.why}; in 16 intervals, as a model needs a table"
            return [*islice(guesses, number), Guess(column, why), *guesses[number + 1 :]]
    raise DataError(f"{source}: has a label, and no column for an embedding table; write the schema by hand")
