"""Rows whose times do not ascend are counted, wherever parts and chunks of them begin."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from bagpipe_hpc.storage.shards.entries import TIMESTAMP
from data_prep.formats.source_format import SourceFormat
from data_prep.parsed_rows import ParsedRows
from data_prep.stages.fit import fit_rows

EXTREMES = [-(1 << 63), -(1 << 63), 0, (1 << 63) - 1]


class Rows:
    """Parsed rows of given times: parts of chunks."""

    def __init__(self, parts: Sequence[Sequence[Sequence[int]]]) -> None:
        self._parts = parts
        self.rows = sum(len(chunk) for part in parts for chunk in part)

    def parts(self, rows: int) -> Iterator[pa.Table]:
        assert rows == self.rows
        for part in self._parts:
            yield pa.table({TIMESTAMP: pa.chunked_array(part, pa.int64())})


class NothingFitted:
    """A format that takes nothing from the training rows."""

    def fit(self, parts: Any) -> None:
        """Nothing."""


def notes(parts: Sequence[Sequence[Sequence[int]]]) -> list[str]:
    told: list[str] = []
    rows, source_format = cast(ParsedRows, Rows(parts)), cast(SourceFormat, NothingFitted())
    assert fit_rows(rows, 0, source_format, "nothing", None, told.append) is None
    return told


@pytest.mark.parametrize(
    "parts",
    [
        [[[5, 4, 6]]],
        [[[5], [4, 6]]],
        [[[5]], [[4, 6]]],
        [[[5], [], [4], [6]]],
        [[[]], [[5]], [[], [4, 6]]],
        [[[-5], [-6, 4]]],
    ],
)
def test_a_row_that_is_earlier_than_the_one_before_it_is_noted(parts: Sequence[Sequence[Sequence[int]]]) -> None:
    (note,) = notes(parts)
    assert note.startswith("note: 1 of 3 rows are earlier than the row before them, row 2 first; ")


def test_all_such_rows_are_counted_and_the_first_is_named() -> None:
    (note,) = notes([[[1, 2], [2, 1]], [[0, 7], [6]]])
    assert note.startswith("note: 3 of 7 rows are earlier than the row before them, row 4 first; ")


@pytest.mark.parametrize("parts", [[], [[[]]], [[[-7, -7], [0]], [[0, 1]]], [[[], [3]], [[]], [[4]]], [[EXTREMES]]])
def test_nothing_is_said_of_times_that_ascend(parts: Sequence[Sequence[Sequence[int]]]) -> None:
    assert notes(parts) == []
