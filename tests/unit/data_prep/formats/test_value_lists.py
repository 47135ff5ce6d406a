"""Fields of any number of values, several labels and weights are read as the layout says, or named."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats.columns import Label, Sparse, SparseList, Values, Weight
from data_prep.formats.delimited import BadLine, DelimitedParser, layout_rows
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import row_schema
from data_prep.formats.value_lists import list_values

COLUMNS = (
    Label("click"),
    SparseList("seen", Values.INTEGER, table="item"),
    Weight("weight"),
    SparseList("tags", separator=";", weights="="),
    SparseList("pages", Values.HEX, separator=" "),
    Label("buy"),
    Sparse("item", Values.INTEGER),
    SparseList("scores", Values.INTEGER, weights=":"),
    SparseList("words"),
)
GOOD = {
    "click": "1",
    "seen": "7|-3|7",
    "weight": "0.5",
    "tags": "a=1;b=c=-2e0",
    "pages": "ff 0A",
    "buy": "0",
    "item": "7",
    "scores": "12:.5",
    "words": "so|Nüsse| x",
}
LAYOUT = TextLayout(COLUMNS, ",")
PARSER = DelimitedParser(LAYOUT, row_schema(LAYOUT), layout_rows(LAYOUT, row_schema(LAYOUT)))


def line(**fields: str) -> bytes:
    return ",".join((GOOD | fields).values()).encode()


def test_values_of_a_row() -> None:
    rows, bad = PARSER.parse_block(line() + b"\n" + line(buy="1", weight="3"))
    assert bad == []
    rows.validate(full=True)
    assert rows.schema == row_schema(LAYOUT)
    assert rows.to_pylist()[0] == {
        "label": [1, 0],
        "weight": 0.5,
        "seen": [7, -3, 7],
        "tags": [{"value": "a", "weight": 1.0}, {"value": "b=c", "weight": -2.0}],
        "pages": [255, 10],
        "item": 7,
        "scores": [{"value": 12, "weight": 0.5}],
        "words": ["so", "Nüsse", " x"],
    }
    assert rows.column("label").to_pylist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("others", [0, 1])
def test_an_empty_field_is_an_empty_list(others: int) -> None:
    """In a block of nothing else, too."""
    empty = line(seen="", tags="", pages="", scores="", words="")
    rows, bad = PARSER.parse_block(b"\n".join([empty, *[line()] * others, empty]))
    assert bad == []
    rows.validate(full=True)
    for name in ("seen", "tags", "pages", "scores", "words"):
        lists = rows.column(name).to_pylist()
        assert (lists[0], lists[-1], len(lists)) == ([], [], 2 + others)
        assert rows.column(name).null_count == 0


def test_values_of_a_slice() -> None:
    rows, _ = PARSER.parse_block(b"\n".join([line(), line(seen="", tags=""), line(seen="5|6", tags="z=9")]))
    part = rows.slice(1)
    assert list_values(part.column("seen")).to_pylist() == [5, 6]
    assert list_values(part.column("tags")).to_pylist() == ["z"]
    assert list_values(part.column("item")).to_pylist() == [7, 7]


BAD = {
    "seen is '1||2', which holds an empty value": line(seen="1||2"),
    "seen is '1|', which holds an empty value": line(seen="1|"),
    "seen is '|', which holds an empty value": line(seen="|"),
    "seen is '1|x', which holds 'x', which is no integer": line(seen="1|x"),
    "seen is '1| 2', which holds ' 2', which is no integer": line(seen="1| 2"),
    "seen is '9223372036854775808', which holds '9223372036854775808', which does not fit 64 bits": line(
        seen=str(1 << 63)
    ),
    "tags is 'a', which holds 'a' without '=' and a weight": line(tags="a"),
    "tags is 'a=1;b', which holds 'b' without '=' and a weight": line(tags="a=1;b"),
    "tags is '=1', which holds an empty value": line(tags="=1"),
    "tags is 'a=', which holds 'a=', whose weight is empty": line(tags="a="),
    "tags is 'a=x', which holds 'x', which is no number": line(tags="a=x"),
    "tags is 'a=nan', which holds 'nan', which is no number": line(tags="a=nan"),
    "tags is 'a=1e39', which holds '1e39', which is too large for float32": line(tags="a=1e39"),
    r"tags is '\xff=1;b=c=-2e0', which holds '\xff', which is no UTF-8 text": line().replace(b"a=1", b"\xff=1"),
    "pages is 'ff xy', which holds 'xy' instead of 1 to 8 hexadecimal digits": line(pages="ff xy"),
    "buy is '2' instead of 0 or 1": line(buy="2"),
    "click is '' instead of 0 or 1": line(click=""),
    "weight is '' instead of a number, 0 or more": line(weight=""),
    "weight is '-1', which is less than 0": line(weight="-1"),
    "weight is '-1e-99', which is less than 0": line(weight="-1e-99"),
    "weight is 'x', which is no number": line(weight="x"),
    "weight is '1e39', which is too large for float32": line(weight="1e39"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_line_is_named_and_the_others_are_read(reason: str) -> None:
    rows, bad = PARSER.parse_block(b"\n".join([line(), BAD[reason], line(click="0")]))
    assert bad == [BadLine(1, reason)]
    assert rows.column("label").to_pylist() == [[1, 0], [0, 0]]


FIELD = st.text(st.sampled_from("0123456789afx|;=: -.eé"), max_size=6)
WEIGHT = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(GOOD, FIELD)) | st.just(GOOD), max_size=4))
def test_the_fast_path_and_the_reasons_agree(rows: list[dict[str, str]]) -> None:
    """Whatever the fields hold: a line that is named is refused by itself as well, and no other is."""
    lines = [line(**row) for row in rows]
    read, bad = PARSER.parse_block(b"\n".join(lines))
    assert not any("it cannot be read" in found.reason for found in bad)
    assert len(read) + len(bad) == len(rows)
    named = {found.index for found in bad}
    for number, one in enumerate(lines):
        try:
            PARSER._parse_rows(one)
        except pa.ArrowInvalid:
            assert number in named
        else:
            assert number not in named


@given(st.lists(st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), WEIGHT), max_size=4), min_size=1))
def test_what_is_written_is_read(bags: list[list[tuple[int, float]]]) -> None:
    lines = [line(scores="|".join(f"{value}:{weight!r}" for value, weight in bag)) for bag in bags]
    rows, bad = PARSER.parse_block(b"\n".join(lines))
    assert bad == []
    found = [[(pair["value"], pair["weight"]) for pair in bag] for bag in rows.column("scores").to_pylist()]
    assert found == bags
    assert not any(math.isnan(weight) for bag in found for _, weight in bag)
