"""Times as texts: by Arrow, or by Python where the system has no time zones, as small containers."""

from datetime import UTC, datetime
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_FULL_YEAR = 1000
"""Python writes earlier ones with fewer digits than four."""


def write_times(times: pa.TimestampArray, pattern: str) -> pa.StringArray:
    """Times `[n]` in UTC, to the second, written as a pattern of `strftime` says; null where that is impossible."""
    if _arrow_writes():
        return pc.strftime(times, pattern)
    seconds = times.cast(pa.int64()).to_pylist()
    return pa.array([None if second is None else _write(second, pattern) for second in seconds], pa.string())


@cache
def _arrow_writes() -> bool:
    """Whether Arrow can: it asks the system for time zones, of UTC as well (`/usr/share/zoneinfo`)."""
    try:
        pc.strftime(pa.array([0], pa.timestamp("s")), "%Y")
    except pa.ArrowInvalid:
        return False
    return True


def _write(second: int, pattern: str) -> str | None:
    try:
        time = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError):  # beyond the year 9999, or before 1
        return None
    return time.strftime(pattern) if time.year >= _FIRST_FULL_YEAR else None
