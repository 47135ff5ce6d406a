"""Native code reads a block of fields as its definition does, or leaves it to the definition."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.kernels.text.delimited_text import DelimitedText, Kind, TextColumn
from data_prep.formats.columns import Dense, Group, Label, Sparse, SparseList, Time, Unused, Values, Weight
from data_prep.formats.delimited import DelimitedParser
from data_prep.formats.layout import TextFields
from data_prep.formats.native_delimited import LIBRARY, NativeFields
from tests.drawing import share_of

pytestmark = pytest.mark.skipif(not is_built(LIBRARY), reason="native code was not built")

COLUMNS = (
    Label("label"),
    Unused("skipped"),
    Label("word", positive=("yes",)),
    Label("stars", at_least=4),
    Weight("weight"),
    Dense("price"),
    Dense("visits", log=True),
    Sparse("user", Values.INTEGER),
    Sparse("page", Values.HEX),
    Sparse("item"),
    Sparse("size", Values.BUCKET),
    SparseList("history", Values.INTEGER),
    SparseList("shares", weights=":"),
    SparseList("pages", Values.HEX, separator=";", weights="/"),
    SparseList("tags", separator=" "),
    SparseList("sizes", Values.BUCKET),
    Time("time"),
    Group("group"),
)
GOOD = {
    "label": "1",
    "skipped": "?",
    "word": "yes",
    "stars": "4.5",
    "weight": "0.5",
    "price": "-1.25",
    "visits": "7",
    "user": "-42",
    "page": "00ff",
    "item": "sock",
    "size": "100",
    "history": "1|22|333",
    "shares": "a:0.5|b:c:2",
    "pages": "f/1;0F/-2",
    "tags": "red green",
    "sizes": "1|100",
    "time": "1700000000",
    "group": "9",
}
INTEGERS = st.sampled_from(["0", "-0", "007", "-1", "99999999", "-99999999", "100000000", "9" * 18, "-" + "9" * 18]) | (
    st.integers(-(10**17), 10**17).map(str)
)
REALS = (
    st.floats(-1e30, 1e30).map(repr)
    | st.decimals(-10000, 10000, places=3, allow_nan=False).map(str)
    | st.sampled_from(["5", "5.", ".5", "-.5", "-0", "0.0", "1e3", "1E-05", str(2**53 + 1), "0." + "3" * 30, "1e-400"])
    | st.integers(0, 10**38).map(str)  # 3.4e38 is the largest float32
)
HEX = st.text("0123456789abcdefABCDEF", min_size=1, max_size=8)
CHARACTERS = st.characters(codec="utf-8", exclude_characters='|;,"\r\n\0 :/')
WORDS = st.text(st.sampled_from("ab.:-é") | CHARACTERS, max_size=40)
SOME = WORDS.filter(bool)


def lists(values: st.SearchStrategy[str], separator: str = "|") -> st.SearchStrategy[str]:
    return st.lists(values, max_size=40).map(separator.join)


def weighted(values: st.SearchStrategy[str], between: str) -> st.SearchStrategy[str]:
    return st.tuples(values, st.floats(-1e30, 1e30).map(repr)).map(between.join)


ROWS = st.fixed_dictionaries(
    {
        "label": st.sampled_from("01"),
        "skipped": WORDS,
        "word": st.sampled_from(["yes", "no", "maybe"]),
        "stars": REALS,
        "weight": st.floats(0, 1e30).map(repr),
        "price": REALS | st.just(""),
        "visits": INTEGERS | st.just(""),
        "user": INTEGERS | st.just(""),
        "page": HEX | st.just(""),
        "item": WORDS,
        "size": INTEGERS | st.just(""),
        "history": lists(INTEGERS),
        "shares": lists(weighted(SOME, ":")),
        "pages": lists(weighted(HEX, "/"), ";"),
        "tags": lists(SOME, " "),
        "sizes": lists(INTEGERS),
        "time": st.integers(-(10**10), 10**10).map(str),
        "group": INTEGERS,
    }
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"])


def layout(quoted: bool = False, missing: tuple[str, ...] = ()) -> TextFields:
    return TextFields(COLUMNS, ",", quoted=quoted, missing=missing)


def line(**fields: str) -> bytes:
    return ",".join((GOOD | fields).values()).encode()


@cache
def parsers(of: TextFields) -> tuple[DelimitedParser, DelimitedParser]:
    """The native reader and the definition, which give the fields themselves as rows."""

    def rows_of(fields: dict[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(fields.values()), names=list(fields))

    return tuple(DelimitedParser(of, pa.schema([]), rows_of, native=native) for native in (True, False))


def is_read_natively(text: bytes, of: TextFields | None = None) -> bool:
    return NativeFields(of or layout()).read(text) is not None


def assert_read_alike(text: bytes, of: TextFields | None = None) -> None:
    native, definition = (parser.parse_block(text) for parser in parsers(of or layout()))
    assert native[1] == definition[1]
    native[0].validate(full=True)
    assert native[0].equals(definition[0])


@settings(max_examples=share_of(20), deadline=None)
@given(st.lists(st.tuples(ROWS, ENDS), min_size=1, max_size=4), st.integers(1, 200), st.booleans())
def test_plain_rows_are_read_natively_and_as_defined(
    rows: list[tuple[dict[str, str], bytes]], repetitions: int, end_is_missing: bool
) -> None:
    # Repeated, since native code reads many rows at a time.
    text = b"".join(line(**row) + end for row, end in rows) * repetitions
    text = text.rstrip(b"\r\n") if end_is_missing else text
    assert is_read_natively(text) or any("1e-400" in row.values() for row, _ in rows)
    assert_read_alike(text)


@settings(max_examples=share_of(50), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=2), st.booleans(), st.data())
def test_a_changed_byte_gives_what_the_definition_gives(
    rows: list[dict[str, str]], quoted: bool, data: st.DataObject
) -> None:
    text = bytearray(b"\n".join(line(**row) for row in rows))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(st.sampled_from([*b',|:/;"\n\r\0 -+.eExgN', 0x89]))
        text[place : place + data.draw(st.integers(0, 1))] = bytes([what])
    assert_read_alike(bytes(text), layout(quoted, ("N",)))


ODD_FIELDS = [
    *(
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "nan",
        "inf",
        "1e39",
        "1e400",
        "--1",
        "1.2.3",
        ".",
        "e5",
        "1e",
        "1" * 19,
    ),
    *(
        "9" * 400,
        "fffffffff",
        "g",
        "2",
        "01",
        "/",
        ":",
        "|",
        "1|",
        "|1",
        "1||2",
        "a:",
        ":1",
        "a:1|b",
        "a:nan",
        "f/1e39",
    ),
    *("a\0b", "é", '"', '"1"', "NA", "-9223372036854775808", "9223372036854775808", "9007199254740993"),
]


@pytest.mark.parametrize(
    "field",
    [pytest.param(field, marks=[pytest.mark.slow] if number % 3 else []) for number, field in enumerate(ODD_FIELDS)],
)
def test_a_field_is_read_as_defined(field: str) -> None:
    for name in GOOD:
        text = line() + b"\n" + line(**{name: field}) + b"\n" + line(label="0")
        assert_read_alike(text)
        assert_read_alike(text, layout(quoted=True, missing=("NA", "a longer word")))


@pytest.mark.parametrize("rows_before", [0, 1, 63, 64, 511, 600])
@pytest.mark.parametrize(
    "bad",
    [line(label="2"), line(user="x"), line(history="1||2"), line() + b",", line()[:-2], b" ", b"," * 5000, b"0" * 5000],
    ids=lambda bad: repr(bad[:12]),
)
def test_anything_else_is_left_to_the_definition(bad: bytes, rows_before: int) -> None:
    text = (line() + b"\n") * rows_before + bad + b"\n" + line(label="0")
    assert not is_read_natively(text)
    if rows_before < 2:
        assert_read_alike(text)


FIELDS = st.text(st.sampled_from('ab,;|" é'), max_size=6)


@settings(max_examples=share_of(100), deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=4), st.data())
def test_quotes_are_read_as_defined(rows: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """Whether they stand around a field, in it, or are not closed."""
    of = TextFields((Sparse("a"), SparseList("b"), Sparse("c")), ",", quoted=True, missing=("a",))
    written = [[f'"{field}"' if data.draw(st.booleans()) else field for field in row] for row in rows]
    assert_read_alike("\n".join(map(",".join, written)).encode(), of)


def test_an_end_of_line_inside_quotes_makes_no_rows() -> None:
    """Its separators would suffice for two of them."""
    of = TextFields((Sparse("a"), Sparse("b"), Sparse("c")), ",", quoted=True)
    text = b'a,b,"x\ny",c,d,e\n'
    assert not is_read_natively(text, of)
    assert_read_alike(text, of)


def test_fields_in_quotes_are_read_natively() -> None:
    of = TextFields((Sparse("a"), Sparse("n", Values.INTEGER), SparseList("b")), ",", quoted=True, missing=("NA",))
    text = b'"x, y","12","1|2"\n"","NA",""\nNA,3,"NA"\n' * 100
    fields = NativeFields(of).read(text)
    assert fields is not None
    first = {name: column.to_pylist()[:3] for name, column in fields.items()}
    assert first == {"a": ["x, y", None, None], "n": [12, None, 3], "b": [["1", "2"], [], []]}
    assert_read_alike(text, of)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_block_that_is_cut_off_anywhere_is_read_alike(end: bytes) -> None:
    text = line(price="", history="") + end + line(label="0", user="", item="a" * 70) + end
    for cut in range(1, len(text), 3):
        for part in (text[:cut], text[cut:]):
            if part.strip(b"\r\n"):
                assert_read_alike(part)


@settings(max_examples=share_of(100), deadline=None)
@given(st.lists(st.sampled_from([b",", b",,", b"\n", b"\r", b"0", b"1", b"-", b"f", b"|", b'"', b"\xff", b"\xc3\xa9"])))
def test_hostile_bytes_are_read_alike(pieces: list[bytes]) -> None:
    of = TextFields((Label("l"), Sparse("h", Values.HEX), SparseList("i", Values.INTEGER)), ",", quoted=True)
    text = b"".join(pieces)
    if text.strip(b"\r\n"):
        assert_read_alike(text, of)


@settings(max_examples=share_of(100), deadline=None)
@given(st.lists(REALS | st.floats(allow_nan=False, allow_infinity=False).map(repr), min_size=1, max_size=50))
def test_decimal_numbers_are_rounded_to_the_nearest(numbers: list[str]) -> None:
    read = DelimitedText(1, ",", quoted=False, missing=(), columns=[TextColumn(Kind.REAL, 0)]).read(
        "\n".join(numbers).encode()
    )
    if read is not None:
        expected = np.array([float(number) for number in numbers])
        assert read[0].values.tobytes() == expected.tobytes()  # the sign of zero, too


@pytest.mark.parametrize("text", [b"1", b"1\n", b"\n1\r\n", b"\r\n\r\n1\n\n\n"])
def test_empty_lines_are_no_rows_of_one_field(text: bytes) -> None:
    read = DelimitedText(1, ",", quoted=False, missing=(), columns=[TextColumn(Kind.REAL, 0)]).read(text)
    assert read is not None
    assert read[0].values.tolist() == [1.0]


@pytest.mark.parametrize("separator", ["\t", ";", "|", " ", "^", "]"])
def test_separators(separator: str) -> None:
    of = TextFields((Label("l"), Sparse("a"), Sparse("b", Values.INTEGER)), separator)
    text = separator.join(["1", "x,y", "5"]).encode() + b"\n" + separator.join(["0", "", ""]).encode()
    assert is_read_natively(text, of)
    assert_read_alike(text, of)


def test_columns_without_missing_values_have_no_validity_bits() -> None:
    fields = NativeFields(layout()).read(line(page="", item="") + b"\n")
    assert fields is not None
    assert [fields[name].null_count for name in ("page", "item", "user", "price")] == [1, 1, 0, 0]
    assert fields["user"].buffers()[0] is None
