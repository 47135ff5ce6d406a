"""Checks whether disk and memory have room for a preparation, before rows are written.

The need for disk space is estimated from the first rows of some files. For memory only what the settings ask for is
checked.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError, DataError
from data_prep.formats.layout import RowLayout
from data_prep.formats.source_format import ColumnInput, TextInput
from data_prep.formats.value_lists import list_values
from data_prep.inputs.blocks import bytes_of, parse_input_block, read_range
from data_prep.inputs.ranges import InputRange
from data_prep.preparation_state import WorkFolder
from data_prep.prepare_settings import PrepareSettings

_SAMPLED_FILES, _SAMPLED_BLOCKS = 4, 4
_ID_BYTES, _LABEL_BYTES = 4, 1
_OFFSET_BYTES, _OTHER_BYTES, _COUNT_BYTES = 8, 8, 8
_COUNTING_BYTES = 2 * _COUNT_BYTES
"""Memory for a bucket: its count is held twice while counts of buckets and of values are joined."""
_COMPRESSED = 0.4
"""Size of compressed shards of Criteo's rows, as a share of the uncompressed size."""
_CERTAIN = 0.8
"""Share of an estimate that is certainly needed, even if later rows are smaller than the first ones."""
_UNITS = ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def check_room(
    work: WorkFolder,
    sources: Sequence[Path],
    ranges: Sequence[InputRange],
    open_input: Callable[[int], TextInput | ColumnInput],
    layout: RowLayout,
    settings: PrepareSettings,
    progress: Callable[[str], None],
) -> None:
    """Refuse what cannot fit, and note what may not.

    Args:
        work: the folder, with the parts that it already has.
        sources: the input files.
        ranges: the ranges of all files.
        open_input: says how the file with a number is read.
        layout: layout of the source format.
        settings: say how shards are compressed, and how many unseen buckets a table has. The vocabularies hold a count
            for each bucket; for tables that may turn out to be hashed these are ignored.
        progress: called with the note.

    Raises:
        CapacityError: the disk has less free space than will be needed, or this process too little memory for the
            unseen buckets; the message has the numbers.
    """
    with_buckets = sum(settings.id_rule(table).most_values is None for table in layout.tables)
    if work.vocabularies is not None:  # and with them their counts
        with_buckets = 0
    if with_buckets and settings.like is None:  # with `like`, counts are copied
        _require_memory(settings.unseen_buckets)
    left = sum(piece.bytes for piece in ranges) - sum(part.bytes for part in work.parts)
    stored, parsed, read = (sum(numbers) for numbers in zip(*_sample(sources, ranges, open_input, layout), strict=True))
    if not (stored and read):
        return
    compressed = stored * (1.0 if settings.compression == "none" else _COMPRESSED)
    written = sum(shard.bytes for shard in work.shards.values())
    of_parts = left * parsed / read
    of_shards = max(0.0, sum(piece.bytes for piece in ranges) * compressed / read - written)
    of_buckets = _COUNT_BYTES * settings.unseen_buckets * with_buckets
    needed = of_parts + of_shards + of_buckets
    free = shutil.disk_usage(work.output).free
    name = work.made_for or work.output
    counts = f", {size_text(of_buckets)} for counts of unseen buckets" if of_buckets else ""
    need = (
        f"{name}: about {size_text(needed)} are needed there ({size_text(of_parts)} for parsed rows while it runs, "
        f"{size_text(of_shards)} for shards{counts}), and {size_text(free)} are free"
    )
    if _CERTAIN * needed > free:
        raise CapacityError(f"{need}; free some space, or choose another --output")
    if needed > free:
        then = "starts anew" if work.made_for else "goes on"
        progress(f"note: {need}; if that is too little, the same command {then} once there is more")


def _require_memory(unseen_buckets: int) -> None:
    """Check that the buckets of one table can be counted: tables are counted one after the other."""
    needed, free = _COUNTING_BYTES * unseen_buckets, free_bytes()
    if needed > free:
        raise CapacityError(
            f"prepare: unseen-buckets = {unseen_buckets}: to count those of a table takes {size_text(needed)} of "
            f"memory, and {size_text(free)} are free; use fewer, or a host with more memory"
        )


def size_text(size: float) -> str:
    """Bytes in the largest unit of which there is at least one, such as `1.5 GB`."""
    least, name = next((unit for unit in _UNITS if size >= unit[0]), _UNITS[-1])
    return f"{size / least:.1f} {name}"


def stored_bytes(batch: pa.RecordBatch, layout: RowLayout) -> int:
    """Bytes that parsed rows `[n]` take in a shard without compression."""
    fields = len(layout.dense) + len(layout.sparse) + (layout.weight is not None)
    row_bytes = _LABEL_BYTES * len(layout.labels) + _ID_BYTES * fields + _OTHER_BYTES * len(layout.others)
    of_lists = 0
    for column in layout.lists:
        value_bytes = _ID_BYTES * (1 if column.weights is None else 2)
        of_lists += _OFFSET_BYTES * len(batch) + value_bytes * len(list_values(batch.column(column.name)))
    return row_bytes * len(batch) + of_lists


def _sample(
    sources: Sequence[Path],
    ranges: Sequence[InputRange],
    open_input: Callable[[int], TextInput | ColumnInput],
    layout: RowLayout,
) -> Iterator[tuple[int, int, int]]:
    """Bytes in shards, bytes as parsed rows and bytes of the input of the first blocks of some files."""
    firsts = [piece for piece in ranges if piece.begin == 0]
    yield 0, 0, 0
    for piece in firsts[:: max(1, len(firsts) // _SAMPLED_FILES)]:
        how = open_input(piece.source)
        with suppress(DataError):  # the parser reports it in its turn
            for block in islice(read_range(sources[piece.source], how, piece, None), _SAMPLED_BLOCKS):
                _, batch, _ = parse_input_block(block, how)
                yield stored_bytes(batch, layout), batch.nbytes, bytes_of(block, piece)
