"""Rows are read exactly, and a line that is none is named with its reason."""

import math

import pytest

from data_prep.formats.criteo import Criteo, CriteoBuckets

CRITEO = Criteo(None)
ROW_SCHEMA, parse_block = CRITEO.schema, CRITEO.parse_block


def row(**fields: str) -> bytes:
    values = {"label": "0"} | {f"I{i}": str(i) for i in range(1, 14)} | {f"C{i}": f"{i:08x}" for i in range(1, 27)}
    return "\t".join((values | fields).values()).encode()


def test_values_of_a_row() -> None:
    rows, bad = parse_block(row(label="1", I1="", I2="-3", I3="0", I4="1000000", C1="", C2="ABCDEF01", C3="1f") + b"\n")
    assert bad == []
    assert rows.schema == ROW_SCHEMA
    (values,) = rows.to_pylist()
    assert values["label"] == 1
    assert values["dense"][:3] == [0, 0, 0]
    assert values["dense"][3] == pytest.approx(math.log1p(1000000), rel=1e-7)
    assert values["dense"][4:] == pytest.approx([math.log(1 + i) for i in range(5, 14)], rel=1e-7)
    assert [values[f"C{i}"] for i in (1, 2, 3, 26)] == [None, 0xABCDEF01, 0x1F, 26]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_ends_of_line_and_empty_lines(end: bytes) -> None:
    rows, bad = parse_block(end.join([row(), b"", row(label="1"), b"", row()]))
    assert bad == []
    assert rows.column("label").to_pylist() == [0, 1, 0]


@pytest.mark.parametrize("text", [b"\n", b"\r\n\r\n", b""])
def test_nothing_but_empty_lines(text: bytes) -> None:
    rows, bad = parse_block(text)
    assert (len(rows), bad) == (0, [])


BAD = {
    "41 tab-separated fields instead of 40": row() + b"\t",
    "39 tab-separated fields instead of 40": row().rpartition(b"\t")[0],
    "1 tab-separated fields instead of 40": b"   ",
    "label is '2' instead of 0 or 1": row(label="2"),
    "label is '01' instead of 0 or 1": row(label="01"),
    "label is '00' instead of 0 or 1": row(label="00"),
    "label is 'click' instead of 0 or 1": row(label="click"),
    "label is '' instead of 0 or 1": row(label=""),
    "label is '-1' instead of 0 or 1": row(label="-1"),
    "I7 is '1.5', which is no integer": row(I7="1.5"),
    "I7 is ' 5', which is no integer": row(I7=" 5"),
    "I7 is '0x5', which is no integer": row(I7="0x5"),
    "I13 is '9223372036854775808', which does not fit 64 bits": row(I13="9223372036854775808"),
    "C5 is 'xyz' instead of 1 to 8 hexadecimal digits": row(C5="xyz"),
    "C26 is '123456789' instead of 1 to 8 hexadecimal digits": row(C26="123456789"),
    r"C1 is '\xc3\xa9' instead of 1 to 8 hexadecimal digits": row(C1="é"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_line_is_named_and_the_others_are_read(reason: str) -> None:
    lines = [row(), b"", row(label="1"), BAD[reason], row()]
    rows, bad = parse_block(b"\r\n".join(lines))
    assert [(line.index, line.reason) for line in bad] == [(3, reason)]
    assert rows.column("label").to_pylist() == [0, 1, 0]


def test_very_long_fields_are_shown_in_part() -> None:
    _, (bad,) = parse_block(row(I1="9" * 100_000))
    assert len(bad.reason) < 100
    assert "64 bits" in bad.reason


def test_every_bad_line_of_a_block_is_named() -> None:
    rows, bad = parse_block(b"\n".join([b"a", row(), b"b", b"c"]))
    assert [line.index for line in bad] == [0, 2, 3]
    assert len(rows) == 1


@pytest.mark.parametrize("suspect", ["", " 5"])
@pytest.mark.parametrize("dense", [True, False])
def test_integers_by_their_buckets(dense: bool, suspect: str) -> None:
    """Also in a block that is read as text first, for a line that is left out."""
    read = CriteoBuckets(CriteoBuckets.Settings(dense))
    lines = [row(I1="", I2="-3", I3="0", I4="2", I5="3", I6="1000000"), row(I9=suspect)]
    rows, bad = read.parse_block(b"\n".join(lines))
    assert [line.reason for line in bad] == (["I9 is ' 5', which is no integer"] if suspect else [])
    assert rows.schema == read.schema
    values = rows.to_pylist()[0]
    assert [values[f"I{i}"] for i in range(1, 7)] == [None, 0, 1, 3, 4, 3 + math.floor(math.log(1000000) ** 2)]
    assert values["C26"] == 26
    if dense:
        assert values["dense"] == parse_block(lines[0])[0].to_pylist()[0]["dense"]
    else:
        assert "dense" not in values
