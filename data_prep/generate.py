"""`bagpipe generate`: synthetic clicks in files, with a planted model that a recommendation model can find."""

import contextlib
import functools
import gzip
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import writing_to
from data_prep.formats import criteo, sequences
from data_prep.formats.layout import TextFields, TextLayout
from data_prep.room import size_text
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

_CERTAIN = 0.2
"""Share of an estimated size that a disk certainly needs: some file systems compress. gzip leaves a quarter or more."""

_Sink = BinaryIO | gzip.GzipFile
_Write = Callable[[_Sink, Iterator[pa.Table]], None]
"""Writes blocks of rows to a file."""


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
        CapacityError: the disk is full; or it has, by the size of the first block, no room for all rows.
    """
    _require(rows >= 1, "rows", rows, "use 1 or more")
    _require(seed >= 0, "seed", seed, "use 0 or more")
    _require(np.isfinite(zipf) and zipf >= 0, "zipf", zipf, "use 0 (uniform) or a larger exponent")
    _require(ids_at_most is None or ids_at_most >= 1, "ids_at_most", ids_at_most, "use 1 or more")
    _require(
        output.suffix not in (".xz", ".zst", ".bz2"), "output", str(output), "use a name that ends in .gz, .tsv or .csv"
    )
    _require(kind in KINDS, "kind", kind, f"use one of {', '.join(KINDS)}")
    draw, write = _of_kind(kind) if schema is None else _of_schema(schema, parquet=output.suffix == ".parquet")
    _require(
        schema is not None or output.suffix != ".parquet", "output", str(output), "write text, or give a schema as well"
    )
    with writing_to(output, ", or write fewer rows", ConfigError):
        _require(not output.is_dir(), "output", str(output), "is a folder; name a file in it, such as clicks.tsv")
        _require(not os.path.lexists(output), "output", str(output), "is there already; remove it, or use another name")
        output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as partial:
            with _open_sink(partial, compressed=output.suffix == ".gz") as sink:
                write(sink, _while_room(draw(rows, seed, zipf, ids_at_most), rows, output, partial))
            _require(
                not os.path.lexists(output), "output", str(output), "was made by somebody else meanwhile; look at it"
            )


def _require(holds: bool, argument: str, value: object, cure: str) -> None:
    if not holds:
        raise ConfigError(f"generate: {argument} = {value!r}: {cure}")


def _while_room(blocks: Iterator[pa.Table], rows: int, output: Path, partial: Path) -> Iterator[pa.Table]:
    """The blocks of rows, of which the second comes only if the disk may have room for all.

    Args:
        blocks: one or more.
        rows: number of rows of all blocks.
        output: what the user calls the file.
        partial: where each block is written before the next one is asked for.

    Raises:
        CapacityError: the disk has too little room.
    """
    free = shutil.disk_usage(partial.parent).free
    first = next(blocks)
    yield first
    needed = partial.stat().st_size * rows / len(first)
    if _CERTAIN * needed > free:
        raise CapacityError(
            f"{output}: about {size_text(needed)} are needed for {rows:,} rows, by the size of the first ones, and "
            f"{size_text(free)} are free; write fewer rows, free some space, or choose another --output"
        )
    yield from blocks


def _of_kind(kind: str) -> tuple[DrawBlocks, _Write]:
    """What draws and what writes the rows of one of `KINDS`."""
    draw, layout = KINDS[kind]
    return draw, lambda sink, blocks: _write_text(sink, layout, blocks)


def _of_schema(schema: Schema, *, parquet: bool) -> tuple[DrawBlocks, _Write]:
    """What draws and what writes the rows of a schema."""
    require_times(schema)
    has_quotes = not parquet and needs_quotes(schema)
    fields = TextFields(
        tuple(map(field_of, schema.columns)), schema.file.character, schema.file.header, schema.file.quoted
    )

    def write(sink: _Sink, blocks: Iterator[pa.Table]) -> None:
        if not parquet:
            _write_text(sink, fields, (as_text(schema, block) for block in blocks), has_quotes)
            return
        first = next(blocks)
        with pa_parquet.ParquetWriter(sink, first.schema, compression="zstd") as file:
            for block in chain([first], blocks):
                file.write_table(block)

    return functools.partial(schema_blocks, schema), write


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
