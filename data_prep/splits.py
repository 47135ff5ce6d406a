"""Which rows are for training and which for tests: the last ones, by their share or by their files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.inputs.ranges import InputRange
from data_prep.parsed_rows import Part
from data_prep.prepare_settings import PrepareSettings


@dataclass(frozen=True)
class Split:
    """The rows of both splits.

    Attributes:
        train_rows: number of training rows, the first ones.
        test_first: first row of the test split.
        test_last: row at which the test split ends. Rows between the splits and after them are in neither.
    """

    train_rows: int
    test_first: int
    test_last: int

    @property
    def rows(self) -> int:
        """Rows of both."""
        return self.train_rows + self.test_last - self.test_first


def split_rows(settings: PrepareSettings, parts: Sequence[Part], ranges: Sequence[InputRange], files: int) -> Split:
    """The splits of parsed rows.

    Args:
        settings: say which rows are for tests.
        parts: all parts of parsed rows.
        ranges: ranges of the input, to whose numbers parts refer.
        files: number of input files.
    """
    rows = sum(part.rows for part in parts)
    if settings.test_files is None:
        train_rows = rows - round(rows * settings.test_share)
        return Split(train_rows, train_rows, rows)
    first_file = files - settings.test_files
    train_rows = sum(part.rows for part in parts if ranges[part.range].source < first_file)
    middle = train_rows + math.ceil((rows - train_rows) / 2)
    match settings.test_half:
        case "first":
            return Split(train_rows, train_rows, middle)
        case "second":
            return Split(train_rows, middle, rows)
    return Split(train_rows, train_rows, rows)
