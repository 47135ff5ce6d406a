"""`bagpipe generate`: synthetic clicks in files, with a planted model that a recommendation model can find."""

import contextlib
import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import writing_to
from data_prep.formats import criteo, sequences
from data_prep.formats.layout import TextFields, TextLayout
from data_prep.schema.document import Schema
from data_prep.schema.rows import field_of
from data_prep.synthetic.criteo_clicks import click_blocks
from data_prep.synthetic.schema_rows import as_text, needs_quotes, require_times, schema_blocks
from data_prep.synthetic.sequences import sequence_blocks

DrawBlocks = Callable[[int, int, float, int | None], Iterator[pa.Table]]
"""Draws rows, given their number, the seed, the exponent and most ids of a table, in blocks with the text's columns."""

KINDS: dict[str, tuple[DrawBlocks, TextLayout]] = {
    "criteo": (click_blocks, criteo.LAYOUT),
    "sequences": (sequence_blocks, sequences.LAYOUT),
}
"""For each kind, what draws its rows, and the layout of their text, which `bagpipe prepare --format KIND` reads."""


_Sink = BinaryIO | gzip.GzipFile
_Write = Callable[[_Sink, int, int, float, int | None], None]
"""Writes rows to a file; further arguments as for `DrawBlocks`."""


def generate_clicks(
    rows: int,
    output: Path,
    seed: int = 1,
    zipf: float = 1.05,
    *,
    ids_at_most: int | None = None,
    kind: str = "criteo",
    schema: Schema | None = None,
) -> None:
    """Write synthetic clicks, as text of a source format of the package.

    The same seed and exponent always give the same rows; a larger number of rows begins with the same ones. Memory is
    that of one block of 65,536 rows (about 100 MB) and 16 bytes an id. The file appears under its name when it is
    complete; its folder is made if it does not exist.

    Args:
        rows: number of rows, 1 or more.
        output: file to write; `.gz` compresses it.
        seed: determines the planted model and the rows, 0 or more.
        zipf: exponent of the popularity of ids, rank ** -zipf; 0 makes all ids of a table equally frequent.
        ids_at_most: cut the tables to this many ids each, those of `criteo` from the sizes of the Criteo Kaggle data;
            None takes the kind's own.
        kind: one of `KINDS`: `criteo` (label, 13 integers and 26 columns of 8 hexadecimal digits) or `sequences`
            (users, items and histories of items, with two labels). Ignored where there is a schema.
        schema: write rows of its columns instead, as Parquet if `output` ends in `.parquet`.

    Raises:
        ConfigError: an argument is out of its range, or `output` exists or cannot be written.
        CapacityError: the disk is full.
    """
    _require(rows >= 1, "rows", rows, "use 1 or more")
    _require(seed >= 0, "seed", seed, "use 0 or more")
    _require(np.isfinite(zipf) and zipf >= 0, "zipf", zipf, "use 0 (uniform) or a larger exponent")
    _require(ids_at_most is None or ids_at_most >= 1, "ids_at_most", ids_at_most, "use 1 or more")
    _require(
        output.suffix not in (".xz", ".zst", ".bz2"), "output", str(output), "use a name that ends in .gz, .tsv or .csv"
    )
    _require(kind in KINDS, "kind", kind, f"use one of {', '.join(KINDS)}")
    write = _text_of_kind(kind) if schema is None else _rows_of_schema(schema, parquet=output.suffix == ".parquet")
    _require(
        schema is not None or output.suffix != ".parquet", "output", str(output), "write text, or give a schema as well"
    )
    with writing_to(output, ", or write fewer rows", ConfigError):
        _require(not output.is_dir(), "output", str(output), "is a folder; name a file in it, such as clicks.tsv")
        _require(not os.path.lexists(output), "output", str(output), "is there already; remove it, or use another name")
        output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as partial:
            with _open_sink(partial, compressed=output.suffix == ".gz") as sink:
                write(sink, rows, seed, zipf, ids_at_most)
            _require(
                not os.path.lexists(output), "output", str(output), "was made by somebody else meanwhile; look at it"
            )


def _require(holds: bool, argument: str, value: object, cure: str) -> None:
    if not holds:
        raise ConfigError(f"generate: {argument} = {value!r}: {cure}")


def _text_of_kind(kind: str) -> _Write:
    """A function that writes the rows of one of `KINDS`."""
    draw, layout = KINDS[kind]

    def write(sink: _Sink, rows: int, seed: int, zipf: float, ids_at_most: int | None) -> None:
        _write_text(sink, layout, draw(rows, seed, zipf, ids_at_most))

    return write


def _rows_of_schema(schema: Schema, *, parquet: bool) -> _Write:
    """A function that writes the rows of a schema."""
    require_times(schema)
    has_quotes = not parquet and needs_quotes(schema)
    fields = TextFields(
        tuple(map(field_of, schema.columns)), schema.file.character, schema.file.header, schema.file.quoted
    )

    def write(sink: _Sink, rows: int, seed: int, zipf: float, ids_at_most: int | None) -> None:
        blocks = schema_blocks(schema, rows, seed, zipf, ids_at_most)
        if not parquet:
            _write_text(sink, fields, (as_text(schema, block) for block in blocks), has_quotes)
            return
        first = next(blocks)
        with pa_parquet.ParquetWriter(sink, first.schema, compression="zstd") as file:
            for block in chain([first], blocks):
                file.write_table(block)

    return write


def _write_text(sink: _Sink, fields: TextFields, blocks: Iterable[pa.Table], has_quotes: bool = False) -> None:
    """Write rows as text; with `has_quotes`, all texts are quoted."""
    quoting = "needed" if has_quotes else "none"
    options = pa_csv.WriteOptions(include_header=False, delimiter=fields.separator, quoting_style=quoting)
    if fields.header:
        quoted = ('"{}"'.format(name.replace('"', '""')) for name in fields.names)
        names = quoted if has_quotes else fields.names
        sink.write(f"{fields.separator.join(names)}\n".encode())
    for block in blocks:
        pa_csv.write_csv(block, sink, options)


@contextlib.contextmanager
def _open_sink(path: Path, compressed: bool) -> Iterator[_Sink]:
    with path.open("wb") as plain:
        if not compressed:
            yield plain
            return
        # No name and no time in the header: the same rows are the same bytes.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=plain, mtime=0) as packed:
            yield packed
