"""The middle stage of a preparation: the values of training rows are counted, and get their ids.

Threads count columns.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.vocabulary import TableValues, load_vocabularies, write_vocabularies
from data_prep.backend import Backend
from data_prep.formats.layout import RowLayout
from data_prep.parsed_rows import ParsedRows
from data_prep.preparation_state import WorkFolder
from data_prep.prepare_settings import PrepareSettings


def make_vocabularies(
    pool: ThreadPoolExecutor,
    rows: ParsedRows,
    train_rows: int,
    work: WorkFolder,
    layout: RowLayout,
    settings: PrepareSettings,
    backend: Backend,
    progress: Callable[[str], None],
) -> tuple[FileInfo, list[TableValues | None]]:
    """The values of each table in the order of their ids: those that are saved, or those of the training rows.

    Returns:
        The file of vocabularies, and the values of each table.
    """
    names = [table.name for table in layout.tables]
    if work.vocabularies is not None:
        saved = load_vocabularies(work.output / work.vocabularies.file, names)
        return work.vocabularies, [saved.get(name) for name in names]
    limit = settings.max_rows_per_table
    min_count, most_values = (settings.min_count, None) if limit is None else (1, limit - 1)
    vocabularies = backend.build_vocabularies(pool, rows, layout.tables, train_rows, min_count, most_values)
    found = {name: values for name, values in zip(names, vocabularies, strict=True) if values is not None}
    written = write_vocabularies(work.output, found)
    work.note_vocabularies(written)
    ids = sum(len(values) + 1 for values in found.values())
    hashed = [name for name in names if name not in found]
    others = f"; {', '.join(hashed)} hashed to {limit} ids each" if hashed else ""
    progress(f"built vocabularies of {ids} ids from {train_rows} rows{others}")
    return written, vocabularies
