"""Text is read as its layout says, and a line that does not keep to it is named with field, value and reason."""

import csv
import io
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_prep.formats.delimited
from data_prep.formats.columns import Dense, Label, Sparse, Time, Unused, Values
from data_prep.formats.delimited import BadLine, DelimitedParser, layout_rows
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import row_schema
from data_prep.inputs.text_blocks import BLOCK_BYTES

COLUMNS = (
    Sparse("user", Values.INTEGER),
    Dense("price"),
    Unused("time"),
    Label("bought"),
    Sparse("item"),
    Dense("visits", log=True),
    Sparse("page", Values.HEX),
)
GOOD = {"user": "7", "price": "1.5", "time": "?", "bought": "1", "item": "sock", "visits": "0", "page": "ff"}


def parser(separator: str = ",", quoted: bool = False) -> DelimitedParser:
    return parser_of(TextLayout(COLUMNS, separator, quoted=quoted))


def parser_of(layout: TextLayout) -> DelimitedParser:
    return DelimitedParser(layout, row_schema(layout), layout_rows(layout, row_schema(layout)))


def line(separator: str = ",", **fields: str) -> bytes:
    return separator.join((GOOD | fields).values()).encode()


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", " ", "^", "]"])
def test_values_of_a_row(separator: str) -> None:
    text = line(separator) + b"\r\n\r\n" + line(separator, user="-9223372036854775808", price="-.5e1", item="")
    rows, bad = parser(separator).parse_block(text)
    assert bad == []
    assert rows.schema.names == ["label", "dense", "user", "item", "page"]
    assert rows.to_pylist() == [
        {"label": 1, "dense": [1.5, 0], "user": 7, "item": "sock", "page": 255},
        {"label": 1, "dense": [-5, 0], "user": -(1 << 63), "item": None, "page": 255},
    ]


def test_missing_values() -> None:
    rows, _ = parser().parse_block(line(user="", price="", time="", item="", visits="", page=""))
    assert rows.to_pylist() == [{"label": 1, "dense": [0, 0], "user": None, "item": None, "page": None}]


def test_a_layout_without_dense_features() -> None:
    layout = TextLayout((Label("l"), Sparse("s")))
    rows, bad = DelimitedParser(layout, row_schema(layout), layout_rows(layout, row_schema(layout))).parse_block(
        b"1\ta b\n2\tc\n0\t\n"
    )
    assert rows.to_pylist() == [{"label": 1, "s": "a b"}, {"label": 0, "s": None}]
    assert bad == [BadLine(1, "l is '2' instead of 0 or 1")]


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\r\n"])
def test_nothing_but_empty_lines(text: bytes) -> None:
    rows, bad = parser().parse_block(text)
    assert (len(rows), bad) == (0, [])


BAD = {
    "8 comma-separated fields instead of 7": line() + b",",
    "1 comma-separated fields instead of 7": b" ",
    "user is '+7', which is no integer": line(user="+7"),
    "user is ' 7', which is no integer": line(user=" 7"),
    "user is '0x7', which is no integer": line(user="0x7"),
    r"user is '\t7', which is no integer": line(user="\t7"),
    "user is '7.0', which is no integer": line(user="7.0"),
    "user is '9223372036854775808', which does not fit 64 bits": line(user=str(1 << 63)),
    "price is ' 1', which is no number": line(price=" 1"),
    "price is '1_0', which is no number": line(price="1_0"),
    "price is 'nan', which is no number": line(price="nan"),
    "price is '-inf', which is no number": line(price="-inf"),
    "price is '0x1', which is no number": line(price="0x1"),
    "price is '1e39', which is too large for float32": line(price="1e39"),
    "price is '-1e400', which is too large for float32": line(price="-1e400"),
    "bought is '' instead of 0 or 1": line(bought=""),
    "bought is '01' instead of 0 or 1": line(bought="01"),
    "visits is '1.5', which is no integer": line(visits="1.5"),
    "page is 'fffffffff' instead of 1 to 8 hexadecimal digits": line(page="f" * 9),
    r"item is '\xff', which is no UTF-8 text": line().replace(b"sock", b"\xff"),
    "it holds a zero byte": line(item="a\0b"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_line_is_named_and_the_others_are_read(reason: str) -> None:
    text = b"\n".join([line(), b"", BAD[reason], line(bought="0", item="a b")])
    rows, bad = parser().parse_block(text)
    assert bad == [BadLine(2, reason)]
    assert rows.column("label").to_pylist() == [1, 0]


@pytest.mark.parametrize("beside", [b"1,b,2021-03-01 00:00:01", b"x"])
@pytest.mark.parametrize(
    "time", ["2021-02-29 00:00:00", "2021-02-30 12:30:31", "2021-04-31 12:00:00", "2021-01-01 00:00:60"]
)
def test_a_time_that_there_is_not_is_bad_whatever_stands_beside_it(time: str, beside: bytes) -> None:
    """C's strptime makes another time of it."""
    columns = (Label("label"), Sparse("item"), Time("time", "%Y-%m-%d %H:%M:%S"))
    good = [b"1,a,2020-02-29 23:59:59", b"0,c,2021-03-03 00:00:00"]
    text = b"\n".join([good[0], f"1,b,{time}".encode(), good[1], beside])
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(text)
    assert bad[0] == BadLine(1, f"time is {time!r}, which is not written as '%Y-%m-%d %H:%M:%S' says")
    assert rows.column("item").to_pylist()[:2] == ["a", "c"]


@pytest.mark.parametrize("written", ["%F %T", "%Y-%m-%d %H:%M:%S"])
@pytest.mark.parametrize("beside", [b"1,b,2021-03-01 00:00:01", b"x"])
def test_times_at_the_beginning_of_a_month_and_minute_are_times(beside: bytes, written: str) -> None:
    """Also by patterns that are C's alone, and where zeros are left out."""
    columns = (Label("label"), Sparse("item"), Time("time", written))
    text = b"1,a,2021-3-1 0:00:00\n0,c,2021-04-02 10:11:01\n" + beside
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(text)
    assert rows.column("item").to_pylist()[:2] == ["a", "c"]
    assert [line.index for line in bad] == ([2] if beside == b"x" else [])


READ_BY_C_ALONE = [
    ("04 March 2021", "%d %b %Y"),
    ("2021-03-04 05:06: 7", "%Y-%m-%d %H:%M:%S"),
    (" 2021-03-04", "%Y-%m-%d"),
    ("2021-03-0405:06:07", "%Y-%m-%d %H:%M:%S"),
    ("21-03-04", "%Y-%m-%d"),
    ("2021-09-5", "%G-%V-%u"),
    ("2021 366", "%Y %j"),
]


@pytest.mark.parametrize("beside", [b"1,b", b"x"])
@pytest.mark.parametrize(("time", "written"), READ_BY_C_ALONE)
def test_a_time_that_is_written_in_another_way_is_bad_whatever_stands_beside_it(
    time: str, written: str, beside: bytes
) -> None:
    """Of some, C's strptime makes the time that was meant, of others another one."""
    good = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC).strftime(written)
    columns = (Label("label"), Sparse("item"), Time("time", written))
    text = b"\n".join([f"1,a,{time}".encode(), beside + (f",{good}".encode() if b"," in beside else b"")])
    _, bad = parser_of(TextLayout(columns, ",")).parse_block(text)
    assert bad[0] == BadLine(0, f"time is {time!r}, which is not written as {written!r} says")
    assert len(bad) == (1 if written != "%G-%V-%u" and b"," in beside else 2)


PATTERNS_OF_C = [
    ("%Y-%m-%d %k:%M", "2021-03-04  5:06", "2021-02-30  5:06"),
    ("%Y-%m-%d %k:%M", "2021-03-04 5:06", "2021-02-30 5:06"),
    ("%Y-%m-%d %k:%M", "2021-03-04 05:06", " 2021-03-04 05:06"),
    ("%Y-%m-%dT%k:%M", "2021-03-04T 5:06", "2021-03-04T  5:06"),
    ("%k:%M %e.%m.%Y", " 5:06  4.3.2021", " 5:06 30.2.2021"),
    ("%k:%M %e.%m.%Y", " 5:06 4.3.2021", "  5:06 4.3.2021"),
    ("%l:%M %p %F", " 5:06 AM 2021-03-04", " 5:06 AM 2021-02-30"),
    ("%Y-%m-%d%t%H:%M", "2021-03-04\t05:06", "2021-03-0405:06"),
    ("%Y-%m-%d%n%H:%M", "2021-03-04  05:06", "2021-02-30 05:06"),
    ("%Y-%m-%d %OH:%M", "2021-03-04 05:06", "2021-02-30 05:06"),
    ("%EY-%m-%d %R", "2021-03-04 5:06", "2021-02-30 5:06"),
    ("%C%y-%m-%d %R", "2021-03-04 5:06", "2021-02-30 5:06"),
    ("%C%y-%m-%dT%R%z", "2021-03-04T06:06+0100", "2021-02-30T06:06+0100"),
    ("%-d/%-m/%Y %R", "4/3/2021 5:06", "31/2/2021 5:06"),
    ("%_d/%0m/%Y %^R", " 4/03/2021 5:06", "31/02/2021 5:06"),
    ("%D %r", "03/04/21 05:06:00 am", "02/30/21 05:06:00 am"),
    ("%%k %F %%T %R%%s", "%k 2021-03-04 %T 05:06%s", "%k 2021-02-30 %T 05:06%s"),
    ("%%F%C%y-%m-%d %R%%s", "%F2021-03-04 05:06%s", "%F2021-02-30 05:06%s"),
]


@pytest.mark.parametrize(("written", "good", "bad"), PATTERNS_OF_C)
def test_times_by_patterns_that_python_lacks_are_those_that_stand_there(written: str, good: str, bad: str) -> None:
    columns = (Label("label"), Sparse("item"), Time("time", written))
    rows, found = parser_of(TextLayout(columns, ",")).parse_block(f"1,a,{good}\n0,b,{bad}".encode())
    assert rows.column("timestamp").to_pylist() == [1_614_834_360]
    assert found == [BadLine(1, f"time is {bad!r}, which is not written as {written!r} says")]


def test_seconds_since_1970_are_read_whatever_python_has() -> None:
    """Neither Arrow nor Python writes them out."""
    columns = (Label("label"), Sparse("item"), Time("time", "at %s"))
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(b"1,a,at 1614834360\n0,b,at 7")
    assert (bad, rows.column("timestamp").to_pylist()) == ([], [1_614_834_360, 7])


@pytest.mark.parametrize("beside", [b"1,b,2021-03-04T05:06:07Z", b"x"])
def test_times_with_an_offset_from_utc(beside: bytes) -> None:
    columns = (Label("label"), Sparse("item"), Time("time", "%Y-%m-%dT%H:%M:%S%z"))
    text = b"1,a,2021-03-04T05:06:07+0200\n0,c,2021-02-30T05:06:07+0200\n0,c,1969-12-31T22:59:59-0100\n" + beside
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(text)
    assert rows.column("timestamp").to_pylist()[:2] == [1_614_827_167, -1]
    assert [line.index for line in bad] == ([1] if beside != b"x" else [1, 3])


@pytest.mark.parametrize("beside", [b"1,b,2021-03-04T05:06:07Z", b"x"])
@pytest.mark.parametrize("zone", ["+9900", "-2400", "+05", "+0260", "UTC", ""])
def test_an_offset_that_there_is_not_is_bad_whatever_stands_beside_it(zone: str, beside: bytes) -> None:
    columns = (Label("label"), Sparse("item"), Time("time", "%Y-%m-%dT%H:%M:%S%z"))
    time = f"2021-03-04T05:06:07{zone}"
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(f"1,a,{time}\n".encode() + beside)
    assert bad[0] == BadLine(0, f"time is {time!r}, which is not written as '%Y-%m-%dT%H:%M:%S%z' says")
    assert rows.column("item").to_pylist() == ([] if beside == b"x" else ["b"])


def test_capitals_of_names_are_as_they_please(monkeypatch: pytest.MonkeyPatch) -> None:
    """And such times, of which there may be many, are not read by Python one by one."""
    monkeypatch.setattr("data_prep.formats.fields._read_by_python", None)
    columns = (Label("label"), Sparse("item"), Time("time", "%d %b %Y %I:%M %p"))
    rows, bad = parser_of(TextLayout(columns, ",")).parse_block(b"1,a,4 MAR 2021 05:06 am\n0,b,04 mar 2021 5:06 PM")
    assert (bad, rows.column("timestamp").to_pylist()) == ([], [1_614_834_360, 1_614_877_560])


def test_an_integer_may_have_many_zeros_before_it() -> None:
    columns = (Label("label"), Sparse("item", Values.INTEGER))
    text = b"1," + b"0" * 5000 + b"7\n0,-9223372036854775808\n0,-9223372036854775809\nx"
    _, bad = parser_of(TextLayout(columns, ",")).parse_block(text)
    assert [line.index for line in bad] == [2, 3]


@pytest.mark.parametrize("beside", [b"5", b"x"])
def test_a_number_that_a_label_is_made_of_may_be_large(beside: bytes) -> None:
    layout = TextLayout((Label("stars", at_least=4), Sparse("item")), ",")
    rows, bad = parser_of(layout).parse_block(b"1e39,a\n-1e400,b\n" + beside + b",c")
    assert rows.column("label").to_pylist()[:2] == [1, 0]
    assert [line.index for line in bad] == ([2] if beside == b"x" else [])


def test_characters_that_pyarrow_takes_for_numbers_do_no_harm_elsewhere() -> None:
    rows, bad = parser().parse_block(line(item="a box") + b"\n" + line(time="x", price="+1E2"))
    assert bad == []
    assert rows.column("item").to_pylist() == ["a box", "sock"]
    assert rows.column("dense").to_pylist() == [[1.5, 0], [100, 0]]
    assert rows.column("user").to_pylist() == [7, 7]


FIELDS = st.text(st.sampled_from('a,"; é') | st.characters(exclude_characters="\r\n\0", codec="utf-8"), max_size=6)


@given(st.lists(FIELDS, min_size=1, max_size=5), st.booleans())
def test_quoted_fields_are_those_of_the_csv_module(items: list[str], everywhere: bool) -> None:
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL if everywhere else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows((GOOD | {"item": item, "time": item}).values() for item in items)
    rows, bad = parser(quoted=True).parse_block(file.getvalue().encode())
    assert bad == []
    assert rows.column("item").to_pylist() == [item or None for item in items]


@pytest.mark.parametrize("item", ['a"b', '"a', 'a"', '"a"b', '"a" ', ' "a"', '"'])
def test_quotes_that_do_not_enclose_a_field(item: str) -> None:
    """Two of them could make one row of two lines."""
    lines = [line(), line(item=item), line(item=item), line(item='"a ""b"""')]
    rows, bad = parser(quoted=True).parse_block(b"\n".join(lines))
    assert [found.index for found in bad] == [1, 2]
    assert "a quote stands inside a field, or is not closed" in bad[0].reason
    assert rows.column("item").to_pylist() == ["sock", 'a "b"']


def test_quotes_mean_nothing_without_quoted() -> None:
    rows, bad = parser().parse_block(line(item='"a"b'))
    assert (rows.column("item").to_pylist(), bad) == (['"a"b'], [])


ANY_FIELD = st.text(st.sampled_from('0123456789abcfx+-.eE "\t_né'), max_size=5) | st.sampled_from(["", "nan", "inf"])


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(GOOD, ANY_FIELD)) | st.just(GOOD), max_size=4), st.booleans())
def test_the_fast_path_and_the_reasons_agree(rows: list[dict[str, str]], quoted: bool) -> None:
    """Whatever the fields hold, pyarrow is never asked for a reason."""
    read, bad = parser(quoted=quoted).parse_block(b"\n".join(line(**row) for row in rows))
    assert not any("it cannot be read" in found.reason for found in bad)
    assert len(read) + len(bad) == len(rows)


def test_a_line_that_only_pyarrow_refuses_is_named_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.formats.delimited, "problem", lambda *_: None)
    rows, (bad,) = parser().parse_block(b"\n".join([line(), line(user="seven"), line()]))
    assert len(rows) == 2
    assert bad.index == 1
    assert "it cannot be read: " in bad.reason
    assert "seven" in bad.reason


@pytest.mark.parametrize("rows_before", [0, 1000, 40_000])
def test_a_line_may_be_as_long_as_two_blocks(rows_before: int) -> None:
    """pyarrow refuses a line that reaches from one of its blocks beyond the next."""
    long = "x" * (2 * BLOCK_BYTES - len(line()) * (rows_before + 2))
    rows, bad = parser().parse_block(b"\n".join([*[line()] * rows_before, line(item=long), line()]))
    assert bad == []
    assert rows.column("item")[rows_before].as_py() == long
    assert len(rows) == rows_before + 2


def test_rows_are_valid_arrow() -> None:
    rows, _ = parser().parse_block(b"\n".join([line(), line(user="", page="")]))
    rows.validate(full=True)
    assert isinstance(rows, pa.RecordBatch)
