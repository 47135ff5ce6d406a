"""Between parsing and counting: what a format takes from the training rows, and a check that times ascend."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bagpipe_hpc.storage.shards.entries import TIMESTAMP
from data_prep.formats.checked_rows import checked_fit
from data_prep.formats.source_format import SourceFormat
from data_prep.parsed_rows import ParsedRows
from data_prep.recorded import RecordedPreparation


def fit_rows(
    rows: ParsedRows,
    train_rows: int,
    source_format: SourceFormat,
    name: str,
    earlier: RecordedPreparation | None,
    progress: Callable[[str], None],
) -> Mapping[str, Any] | None:
    """What a format takes from the training rows; None where it takes nothing.

    Args:
        rows: the parsed rows.
        train_rows: how many of them are training rows.
        source_format: the format.
        name: name of the format.
        earlier: for later rows, the preparation of the earlier ones, whose values are taken over.
        progress: called with a note if times do not ascend.

    Raises:
        DataError: the manifest of the earlier rows does not say what was taken from them.
        ConfigError: the format fails, or takes what JSON cannot hold.
    """
    if note := _time_note(rows):
        progress(note)
    if earlier is not None:
        earlier.refinement()  # refuses what was not taken by this format
        return earlier.fitted
    return checked_fit(source_format, name, lambda: rows.parts(train_rows))


def _time_note(rows: ParsedRows) -> str | None:
    """A note about rows whose times do not ascend; None where they ascend, or rows have no times."""
    last, at, disordered, first = np.iinfo(np.int64).min, 0, 0, 0
    for part in rows.parts(rows.rows):
        if TIMESTAMP not in part.column_names:
            return None
        for chunk in part.column(TIMESTAMP).chunks:
            times = chunk.to_numpy()
            back = np.flatnonzero(times < np.concatenate(([last], times))[:-1])  # a difference might not fit 64 bits
            first = first or (at + int(back[0]) + 1 if len(back) else 0)
            disordered += len(back)
            last, at = (times[-1] if len(times) else last), at + len(times)
    if not disordered:
        return None
    return (
        f"note: {disordered} of {rows.rows} rows are earlier than the row before them, row {first} first; the last "
        "rows of the files are for tests, whatever their time: sort them by time, or name the files in that order"
    )
