"""The texts that a preparation is measured with, and the bare parser that reads each."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from bagpipe_hpc.errors import ConfigError
from data_prep.formats import criteo
from data_prep.formats.fields import text_type
from data_prep.formats.layout import SparseList, Unused, Values
from data_prep.formats.load import SCHEMA
from data_prep.generate import generate_clicks
from data_prep.inputs.parquet_blocks import is_parquet
from data_prep.inputs.text_blocks import TextPosition, read_blocks
from data_prep.ordered_map import ordered_map, worker_threads
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.document import Schema, load_schema, to_document
from data_prep.schema.rows import field_of

WHOLE_BYTES = 1 << 30
"""Larger files are not parsed as a whole: that takes twice their size of memory."""
STREAM, WHOLE = "bare parser, streaming", "bare parser, whole file"
SPLIT = "parser and lists, streaming"
"""The bare parser, which hands lists on as texts, and pyarrow's compute functions, which make lists of them."""
_HASHED_ROWS = 100_000
_OF_CRITEO = {
    "vocabularies, lzf": PrepareSettings(),
    "vocabularies, no compression": PrepareSettings(compression="none"),
    "vocabularies, gzip": PrepareSettings(compression="gzip"),
    "hashing, lzf": PrepareSettings(max_rows_per_table=_HASHED_ROWS),
    "hashing, no compression": PrepareSettings(max_rows_per_table=_HASHED_ROWS, compression="none"),
    "vocabularies, lzf, in Python": PrepareSettings(backend="reference"),
}


@dataclass(frozen=True)
class Text:
    """A text to read.

    Attributes:
        name: what tables and figures call it.
        file: the text, not compressed.
        rows: that it has.
        options: of the bare parser, as `pyarrow.csv.open_csv` takes them.
        preparations: settings by what they are called; their output is the same but for these.
        arguments: of `bagpipe prepare`, that say what the text is.
    """

    name: str
    file: Path
    rows: int
    options: dict[str, Any]
    preparations: dict[str, PrepareSettings]
    arguments: tuple[str, ...]
    lists: tuple[SparseList, ...] = ()
    """Its columns of lists."""

    def bare_parsers(self) -> dict[str, Callable[[], None]]:
        """What reads the text into columns and keeps nothing."""

        def stream() -> None:
            with pa_csv.open_csv(self.file, **self.options) as reader:
                for _ in reader:
                    pass

        def whole() -> None:
            pa_csv.read_csv(self.file, **self.options)

        def split() -> None:
            threads = worker_threads()
            with ThreadPoolExecutor(threads) as pool, pa_csv.open_csv(self.file, **self.options) as reader:
                for _ in ordered_map(pool, self._split_lists, reader, ahead=2 * threads):
                    pass

        return (
            {STREAM: stream}
            | ({SPLIT: split} if self.lists else {})
            | ({WHOLE: whole} if self.file.stat().st_size <= WHOLE_BYTES else {})
        )

    def _split_lists(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The values of all lists, as integers or as texts; weights stay with their values."""
        found = []
        for column in self.lists:
            values = pc.split_pattern(rows.column(column.name).cast(pa.string()), column.separator).flatten()
            is_integer = column.values is Values.INTEGER and column.weights is None
            found.append(values.filter(pc.not_equal(values, "")).cast(pa.int64()) if is_integer else values)
        return found


def criteo_text(clicks: Path | None, rows: int, folder: Path) -> Text:
    """Criteo's clicks.

    Args:
        clicks: a file of them; None generates some.
        rows: number of rows to generate.
        folder: takes the text.
    """
    file = folder / "clicks.tsv"
    if clicks is None:
        generate_clicks(rows, file)
    else:
        rows = _plain_copy(clicks, file)
    types = (
        {"label": pa.uint8()}
        | dict.fromkeys(criteo.INTEGER_NAMES, pa.int64())
        | dict.fromkeys(criteo.TABLE_NAMES, pa.binary())
    )
    options = _options(types, criteo.NAMES, "\t", quoted=False)
    return Text("criteo", file, rows, options, _OF_CRITEO, ())


def schema_text(name: str, rows: int, folder: Path, clicks: Path | None = None) -> Text:
    """Rows of a schema; the bare parser gives the types that a preparation asks it for.

    Args:
        name: of a ready schema, or its TOML file.
        rows: number of rows to generate.
        folder: takes the text.
        clicks: a text of them; None generates some.

    Raises:
        ConfigError: there is no such schema, or `clicks` is a Parquet file.
    """
    schema = load_schema(name)
    file = folder / "clicks.csv"
    if clicks is None:
        generate_clicks(rows, file, schema=schema)
    elif is_parquet(clicks):
        raise ConfigError(f"benchmarks prepare: {clicks}: is a Parquet file; the parser beside it is of text")
    else:
        rows = _plain_copy(clicks, file) - schema.file.header
    described = PrepareSettings(source_format=SCHEMA, schema=to_document(schema))
    reference = PrepareSettings(source_format=SCHEMA, schema=to_document(schema), backend="reference")
    return Text(
        Path(name).stem,
        file,
        rows,
        _schema_options(schema),
        {"vocabularies, lzf": described, "vocabularies, lzf, in Python": reference},
        ("--schema", name),
        tuple(field for column in schema.columns if isinstance(field := field_of(column), SparseList)),
    )


def _schema_options(schema: Schema) -> dict[str, Any]:
    fields = [field_of(column) for column in schema.columns]
    types = {field.name: text_type(field, False) for field in fields if not isinstance(field, Unused)}
    names = None if schema.file.header else [field.name for field in fields]
    return _options(types, names, schema.file.character, quoted=schema.file.quoted, missing=schema.file.missing)


def _options(
    types: dict[str, pa.DataType], names: Any, separator: str, *, quoted: bool, missing: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Of the bare parser; without names the first line has them."""
    return {
        "read_options": pa_csv.ReadOptions(column_names=names, use_threads=True, block_size=1 << 20),
        "parse_options": pa_csv.ParseOptions(delimiter=separator, quote_char='"' if quoted else False),
        "convert_options": pa_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=["", *missing], strings_can_be_null=True
        ),
    }


def _plain_copy(clicks: Path, file: Path) -> int:
    """Copy a text, decompressed; its lines."""
    lines = 0
    with file.open("wb") as plain:
        for block in read_blocks(clicks, TextPosition()):
            plain.write(block.text)
            lines = block.end.line
    return lines
