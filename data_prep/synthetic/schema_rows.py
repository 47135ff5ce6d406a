"""Synthetic rows of any schema, with labels from a planted model that its columns can find.

Every id, every number and, where a sequence shares its table with a category, the similarity of the two adds to the
log-odds of a label: ids belong to `KINDS` kinds, and a click is likelier if the category has the kind of the newest
values.

Shapes: `n` rows of a block, `I` ids of a table, `H` values of all lists of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagpipe_hpc.errors import ConfigError
from data_prep.formats.hex_columns import format_hex
from data_prep.formats.time_texts import write_times
from data_prep.schema.columns import (
    CategoricalColumn,
    GroupColumn,
    LabelColumn,
    MultiHotColumn,
    NumericColumn,
    SequenceColumn,
    TableColumn,
    TimestampColumn,
    WeightColumn,
)
from data_prep.schema.document import Schema
from data_prep.synthetic.criteo_clicks import scatter_ids
from data_prep.synthetic.drawing import BLOCK_ROWS, intercept_of, popularity, sigmoid

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

TABLE_IDS = (20_000, 1_000, 24)
"""Numbers of ids, which tables take in turn; tables of sequences take the largest."""
KINDS = 16
"""Number of kinds of ids: the kind of an id is its remainder."""
RATES = (0.25, 0.05)
"""Shares of rows with label 1: for the first label, and for the others."""
FIRST_SECOND, SECONDS_A_ROW, ROWS_A_GROUP = 1_700_000_000, 3, 20
"""Time of the first row, seconds from a row to the next, and rows of a group."""
LONGEST, MEAN_LENGTH, NEWEST = 30, 8, 10
"""Most and mean values of a list, and how many of a sequence's newest values a label depends on."""
_MISSING = 0.05
_OWN_KIND = 0.7
"""Share of values of a sequence that have the kind that the row likes."""
_AFFINITY = 3.0


@dataclass(frozen=True)
class _Table:
    """The ids of a table.

    Attributes:
        cumulative: cumulative probabilities of the ids, float64 `[I]`.
        appeal: what each id adds to the log-odds, float64 `[I]`.
    """

    cumulative: Floats
    appeal: Floats

    def draw(self, rng: np.random.Generator, count: int) -> Int64s:
        """`count` ids, drawn by popularity."""
        ids: Int64s = np.searchsorted(self.cumulative, rng.random(count), side="right").astype(np.int64)
        return np.minimum(ids, len(self.cumulative) - 1)

    def of_kind(self, ids: Int64s, kinds: Int64s) -> Int64s:
        """Ids of given kinds that are about as popular."""
        moved = ids - ids % KINDS + kinds
        return np.where(moved < len(self.cumulative), moved, ids)


class _World:
    """What rows are drawn from; the same for the same seed."""

    def __init__(self, schema: Schema, seed: int, zipf: float, ids_at_most: int | None) -> None:
        rng = np.random.default_rng([seed, 0])
        self.schema = schema
        self.tables: dict[str, _Table] = {}
        columns = [column for column in schema.columns if isinstance(column, TableColumn)]
        of_sequences = {_table_of(column) for column in columns if isinstance(column, SequenceColumn)}
        for name in dict.fromkeys(map(_table_of, columns)):
            ids = TABLE_IDS[0] if name in of_sequences else TABLE_IDS[len(self.tables) % len(TABLE_IDS)]
            ids = ids if ids_at_most is None else min(ids, ids_at_most)
            deviation = 1.0 / np.sqrt(len(columns))
            self.tables[name] = _Table(popularity(ids, zipf), rng.normal(0.0, deviation, ids))
        self.slopes = {column.name: rng.choice([-1.0, 1.0]) * 0.4 for column in schema.columns}
        self.sequences = [column for column in schema.columns if isinstance(column, SequenceColumn)]


@dataclass(frozen=True)
class _Rows:
    """The columns of a block without its labels, and the log-odds of the first label before the intercept, `[n]`."""

    columns: dict[str, pa.Array]
    log_odds: Floats


def schema_blocks(schema: Schema, rows: int, seed: int, zipf: float, ids_at_most: int | None) -> Iterator[pa.Table]:
    """Tables of up to `BLOCK_ROWS` rows, columns as in the files of a schema; each block has its own random stream.

    Numbers, texts, lists and times have types that Parquet keeps; `as_text` makes fields of them.

    Args:
        schema: describes the columns; derived ones are not written.
        rows: number of rows, 1 or more.
        seed: determines the planted model and the rows, 0 or more.
        zipf: exponent of the popularity of ids, 0 or more.
        ids_at_most: most ids of a table; None takes `TABLE_IDS`.
    """
    world = _World(schema, seed, zipf, ids_at_most)
    labels = [column for column in schema.columns if isinstance(column, LabelColumn)]
    sample = _draw(world, np.random.default_rng([seed, 1]), 0).log_odds
    intercepts = [intercept_of(sample, RATES[min(number, 1)]) for number in range(len(labels))]
    for block, first in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([seed, 2, block])
        drawn = _draw(world, rng, first)
        columns = dict(drawn.columns)
        for label, intercept in zip(labels, intercepts, strict=True):
            clicked = rng.random(BLOCK_ROWS) < sigmoid(drawn.log_odds + intercept)
            columns[label.name] = _label(label, schema.file.missing, clicked, rng)
        ordered = [columns[column.name] for column in schema.columns]
        names = [column.name for column in schema.columns]
        yield pa.Table.from_arrays(ordered, names=names).slice(0, rows - first)


def as_text(schema: Schema, rows: pa.Table) -> pa.Table:
    """The rows of a block as text fields, with lists joined."""
    columns = [
        _joined(column, rows.column(column.name)) if isinstance(column, MultiHotColumn) else rows.column(column.name)
        for column in schema.columns
    ]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def needs_quotes(schema: Schema) -> bool:
    """Whether fields of the rows, or names of columns, need quotes when they are written as text.

    Raises:
        ConfigError: they need quotes, and the file has none; or no field can hold them.
    """
    character, found = schema.file.character, False
    for column in schema.columns:
        texts = {"name": column.name} if schema.file.header else {}
        match column:
            case LabelColumn(positive=(word, *_)):
                texts["positive"] = word
            case TimestampColumn(format=written) if "%" in written:
                texts["format"] = _times(column, np.array([FIRST_SECOND]))[0].as_py()
        for key, text in texts.items():
            where = f"generate: columns.{column.name}.{key} = {text!r:.80}"
            if "\n" in text or "\r" in text:
                raise ConfigError(f"{where}: holds an end of line, which no field may; write Parquet, or leave it out")
            if character in text or '"' in text:
                if not schema.file.quoted:
                    raise ConfigError(
                        f"{where}: holds the separator or a quote, and file.quoted is false; set it to true, use "
                        "another separator, or write Parquet"
                    )
                found = True
    return found


def require_times(schema: Schema) -> None:
    """Check that times can be written in the schema's format.

    Raises:
        ConfigError: they cannot.
    """
    for column in schema.columns:
        if isinstance(column, TimestampColumn) and "%" in column.format:
            try:
                pc.strptime(_times(column, np.array([FIRST_SECOND])), column.format, "s")
            except pa.ArrowInvalid:
                raise ConfigError(
                    f"generate: columns.{column.name}.format = {column.format!r:.80}: no time can be written so and "
                    "read again; use seconds, or a pattern such as %Y-%m-%d %H:%M:%S"
                ) from None


def _draw(world: _World, rng: np.random.Generator, first: int) -> _Rows:
    """A block of rows, the first of which has the number `first`."""
    liked = rng.integers(0, KINDS, BLOCK_ROWS)
    columns: dict[str, pa.Array] = {}
    ids: dict[str, Int64s] = {}
    log_odds = np.zeros(BLOCK_ROWS)
    sequences = {_table_of(column) for column in world.sequences}
    for column in world.schema.columns:
        match column:
            case CategoricalColumn(values="decimal") | NumericColumn():
                columns[column.name], standard = _numbers(column, rng)
                log_odds += world.slopes[column.name] * standard
            case CategoricalColumn():
                table = world.tables[_table_of(column)]
                drawn = table.draw(rng, BLOCK_ROWS)
                if _table_of(column) in sequences:
                    same = rng.random(BLOCK_ROWS) < 0.5
                    drawn = np.where(same, table.of_kind(drawn, liked), drawn)
                    ids.setdefault(_table_of(column), drawn)
                missing = rng.random(BLOCK_ROWS) < _MISSING
                log_odds += np.where(missing, 0.0, table.appeal[drawn])
                columns[column.name] = _values(column, drawn, missing)
            case MultiHotColumn():
                columns[column.name], effect = _lists(world, column, rng, liked, ids.get(_table_of(column)))
                log_odds += effect
            case WeightColumn():
                columns[column.name] = pa.array(rng.integers(50, 201, BLOCK_ROWS) / 100)
            case TimestampColumn():
                columns[column.name] = _times(column, FIRST_SECOND + (first + np.arange(BLOCK_ROWS)) * SECONDS_A_ROW)
            case GroupColumn():
                groups = pa.array((first + np.arange(BLOCK_ROWS)) // ROWS_A_GROUP)
                columns[column.name] = groups if column.values == "integer" else _texts(groups, column.name)
            case LabelColumn():
                pass
            case _:
                columns[column.name] = pa.array(first + np.arange(BLOCK_ROWS))
    return _Rows(columns, log_odds)


def _table_of(column: TableColumn) -> str:
    return column.table or column.name


def _numbers(column: Any, rng: np.random.Generator) -> tuple[pa.Array, Floats]:
    """Log-normal numbers `[n]`, 5 % of them missing, and the standard normals of which they were made, 0 if missing."""
    standard = rng.standard_normal(BLOCK_ROWS)
    missing = rng.random(BLOCK_ROWS) < _MISSING
    numbers = np.round(np.exp(2.0 + standard), 2)
    whole = getattr(column, "integer", False) or getattr(column, "values", "") == "integer"
    drawn = numbers.astype(np.int64) if whole else numbers
    return pa.array(drawn, mask=missing), np.where(missing, 0.0, standard)


def _values(column: Any, ids: Int64s, missing: NDArray[np.bool_] | None) -> pa.Array:
    """The values of ids in a file."""
    if column.values == "hex":
        return format_hex(scatter_ids(ids, 0), np.zeros(len(ids), np.bool_) if missing is None else missing)
    if column.values == "integer":
        return pa.array(ids, mask=missing)
    return _texts(pa.array(ids, mask=missing), column.table or column.name)


def _texts(numbers: pa.Array, name: str) -> pa.StringArray:
    """Texts such as `film_7`."""
    letters = "".join(letter for letter in name if letter.isalnum()) or "v"
    return pc.binary_join_element_wise(letters, numbers.cast(pa.string()), "_")


def _lists(
    world: _World, column: MultiHotColumn, rng: np.random.Generator, liked: Int64s, offered: Int64s | None
) -> tuple[pa.ListArray, Floats]:
    """Lists of values `[n]`, and what they add to the log-odds."""
    table = world.tables[_table_of(column)]
    is_sequence = isinstance(column, SequenceColumn)
    most, mean = (LONGEST, MEAN_LENGTH) if is_sequence else (4, 2)
    lengths = np.minimum(rng.geometric(1 / mean, BLOCK_ROWS), most)
    lengths[rng.random(BLOCK_ROWS) < _MISSING] = 0
    rows = np.repeat(np.arange(BLOCK_ROWS), lengths)
    ids = table.draw(rng, len(rows))
    share = np.maximum(lengths, 1)
    if is_sequence:
        ids = np.where(rng.random(len(rows)) < _OWN_KIND, table.of_kind(ids, liked[rows]), ids)
        from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(rows))
        wanted = liked if offered is None else offered % KINDS
        alike = (ids % KINDS == wanted[rows]) & (from_end <= NEWEST)
        effect = _AFFINITY * np.bincount(rows, alike, BLOCK_ROWS) / np.minimum(share, NEWEST)
    else:
        effect = np.bincount(rows, table.appeal[ids], BLOCK_ROWS) / share
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    values = _values(column, ids, None)
    if column.weights is not None:
        weights = pa.array(rng.integers(1, 101, len(rows)) / 100)
        values = pa.StructArray.from_arrays([values, weights], names=["value", "weight"])
    return pa.ListArray.from_arrays(offsets, values), effect


def _joined(column: MultiHotColumn, lists: pa.ChunkedArray) -> pa.StringArray:
    """The lists of a column as text."""
    one = lists.combine_chunks()
    flat = one.flatten()
    if column.weights is not None:
        parts = [flat.field(name).cast(pa.string()) for name in ("value", "weight")]
        flat = pc.binary_join_element_wise(*parts, column.weights)
    lengths = pc.list_value_length(one).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, flat.cast(pa.string())), column.separator)


def _times(column: TimestampColumn, seconds: Int64s) -> pa.Array:
    if column.format == "seconds":
        return pa.array(seconds)
    if column.format == "milliseconds":
        return pa.array(seconds * 1000)
    zone = "UTC" if "%z" in column.format else None
    return write_times(pa.array(seconds).cast(pa.timestamp("s", zone)), column.format)


def _label(
    column: LabelColumn, missing: Sequence[str], clicked: NDArray[np.bool_], rng: np.random.Generator
) -> pa.Array:
    """Labels `[n]` as the column writes them: 0 or 1, words that are not in `missing`, or numbers."""
    if column.positive:
        words = chain(("0", "no", "other"), (f"other{number}" for number in count(1)))
        other = next(word for word in words if word not in (*column.positive, *missing))
        return pa.array(np.where(clicked, column.positive[0], other))
    if column.at_least is not None:
        return pa.array(
            column.at_least + np.where(clicked, rng.integers(0, 2, BLOCK_ROWS), -rng.integers(1, 4, BLOCK_ROWS))
        )
    return pa.array(clicked.astype(np.uint8))
