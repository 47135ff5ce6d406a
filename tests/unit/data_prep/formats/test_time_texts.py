"""Times become the same texts, and are read alike, whether Arrow or Python writes them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats import time_texts
from data_prep.formats.columns import Label, Sparse, Time
from data_prep.formats.delimited import DelimitedParser, layout_rows
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import row_schema

PATTERNS = ["%Y-%m-%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S", "%y%m%d%H", "%A, %B %d %Y", "%j %p %I:%M"]
YEAR_1000, YEAR_9999 = -30_610_224_000, 253_402_300_799


@pytest.fixture
def without_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_texts, "_arrow_writes", lambda: False)


@given(st.lists(st.none() | st.integers(YEAR_1000, YEAR_9999), max_size=5), st.sampled_from(PATTERNS))
def test_python_writes_what_arrow_writes(seconds: list[int | None], pattern: str) -> None:
    times = pa.array(seconds, pa.int64()).cast(pa.timestamp("s"))
    expected = time_texts.write_times(times, pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_texts, "_arrow_writes", lambda: False)
        assert time_texts.write_times(times, pattern).equals(expected)


@pytest.mark.usefixtures("without_time_zones")
def test_years_that_python_does_not_write_so_have_no_text() -> None:
    times = pa.array([YEAR_9999, YEAR_9999 + 1, YEAR_1000, YEAR_1000 - 1], pa.timestamp("s", "UTC"))
    assert time_texts.write_times(times, "%Y %z").to_pylist() == ["9999 +0000", None, "1000 +0000", None]


@pytest.mark.usefixtures("without_time_zones")
def test_times_are_read_where_the_system_has_no_time_zones() -> None:
    """As in a small container, where every time was once called malformed."""
    columns = (Label("label"), Sparse("item"), Time("time", "%Y-%m-%d %H:%M:%S"))
    layout = TextLayout(columns, ",")
    parser = DelimitedParser(layout, row_schema(layout), layout_rows(layout, row_schema(layout)))
    text = b"1,a,2020-02-29 23:59:59\n0,b,2021-02-29 00:00:00\n1,c,1970-01-01 0:00:07"
    rows, bad = parser.parse_block(text)
    assert rows.column("timestamp").to_pylist() == [1_583_020_799, 7]
    assert [line.index for line in bad] == [1]
