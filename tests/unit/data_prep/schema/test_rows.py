"""What rows take of their fields."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from data_prep.schema.columns import PARTS
from data_prep.schema.rows import part_of

DAY = 86_400
SECONDS = [day * DAY + second for day in (-1000, *range(-9, 9), 20_000) for second in (0, 1, 3599, 3600, DAY - 1)]


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_times_are_those_of_the_calendar_before_1970_and_after(part: str) -> None:
    times = [datetime.fromtimestamp(second, UTC) for second in SECONDS]
    expected = [time.weekday() if part == "weekday" else getattr(time, part) for time in times]
    assert part_of(pa.array([*SECONDS, None], pa.int64()), part).to_pylist() == [*expected, None]
