"""Native code reads a block as its definition does, or leaves it to the definition."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.kernels.text.click_text import read_clicks
from data_prep.formats.criteo import Criteo
from data_prep.formats.delimited import log_of_count
from data_prep.inputs.text_blocks import count_lines
from tests.drawing import share_of

pytestmark = pytest.mark.skipif(not is_built("click_text"), reason="native code was not built")

DEFINITION = Criteo(None)
NATIVE = DEFINITION.native_parser()
HEX = "0123456789abcdefABCDEF"
LABELS = st.sampled_from("01")
INTEGERS = st.sampled_from(["", "0", "-1", "007", "-0", "65535", "65536", "99999999", "100000000", "9" * 18]) | (
    st.integers(-(10**17), 10**18 - 1).map(str)
)
VALUES = st.sampled_from(["", "", "0", "00000000", "ffffffff", "1F"]) | st.text(HEX, min_size=8, max_size=8)
PLAIN_ROWS = st.builds(
    lambda label, integers, values: "\t".join([label, *integers, *values]).encode(),
    LABELS,
    st.lists(INTEGERS, min_size=13, max_size=13),
    st.lists(VALUES, min_size=26, max_size=26),
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"])


def plain_row(**fields: str) -> bytes:
    values = {"label": "0"} | {f"I{i}": str(i) for i in range(1, 14)} | {f"C{i}": f"{i:08x}" for i in range(1, 27)}
    return "\t".join((values | fields).values()).encode()


def is_read_natively(text: bytes) -> bool:
    return read_clicks(text, count_lines(text), log_of_count(np.arange(100))) is not None


def assert_read_alike(text: bytes) -> None:
    (rows, bad), (expected_rows, expected_bad) = NATIVE(text), DEFINITION.parse_block(text)
    assert bad == expected_bad
    rows.validate(full=True)
    assert rows.equals(expected_rows)


@settings(max_examples=share_of(25), deadline=None)
@given(st.lists(st.tuples(PLAIN_ROWS, ENDS), max_size=3), st.integers(0, 40), st.booleans())
def test_plain_rows_are_read_natively_and_as_defined(
    lines: list[tuple[bytes, bytes]], repetitions: int, end_is_missing: bool
) -> None:
    # Repeated, since native code reads 64 rows at a time.
    text = b"".join(line + end for line, end in lines) * repetitions
    text = text.rstrip(b"\r\n") if end_is_missing else text
    assert is_read_natively(text)
    assert_read_alike(text)


@settings(max_examples=share_of(40), deadline=None)
@given(st.lists(PLAIN_ROWS, min_size=1, max_size=2), st.data())
def test_a_changed_byte_gives_what_the_definition_gives(lines: list[bytes], data: st.DataObject) -> None:
    text = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(
            st.sampled_from([b"", b"\t", b"\n", b"\r", b"\0", b" ", b"-", b"x", b"g", b"0", b"\x0b", b"\x89"])
        )
        text[place : place + data.draw(st.integers(0, 1))] = what
    assert_read_alike(bytes(text))


@pytest.mark.parametrize(
    "line",
    [
        plain_row(label="2"),
        plain_row(label=""),
        plain_row(label="01"),
        plain_row(I1="-"),
        plain_row(I13="+1"),
        plain_row(I2="1" * 19),
        plain_row(I3="1.5"),
        plain_row(C1="123456789"),
        plain_row(C26="0000000g"),
        plain_row(C26="/0000000"),
        plain_row(C2="é"),
        plain_row() + b"\t",
        plain_row().rpartition(b"\t")[0],
        b"\t" * 39,
        b"\t" * 100_000,
        b" ",
        b"0" * 100_000,
    ],
    ids=lambda line: repr(line[:12]),
)
@pytest.mark.parametrize("rows_before", [0, 1, 63, 64, 200])
def test_anything_else_is_left_to_the_definition(line: bytes, rows_before: int) -> None:
    text = b"".join([plain_row() + b"\n"] * rows_before) + line + b"\n" + plain_row(label="1")
    assert not is_read_natively(text)
    if rows_before < 2:
        assert_read_alike(text)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_block_that_is_cut_off_anywhere_is_read_alike_or_left_to_the_definition(end: bytes) -> None:
    text = plain_row(C1="", C26="") + end + plain_row(label="1", I1="", C25="abc") + end
    for cut in range(len(text) + 1):
        for part in (text[:cut], text[cut:]):
            if is_read_natively(part):
                assert_read_alike(part)


@settings(max_examples=share_of(100), deadline=None)
@given(
    st.lists(
        st.sampled_from([b"\t", b"\t" * 39, b"\n", b"\r", b"0", b"1", b"-", b"f", b"g", b"\0", b"\xff"]), max_size=300
    )
)
def test_hostile_bytes_are_read_alike_or_left_to_the_definition(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    if is_read_natively(text):
        assert_read_alike(text)


def test_more_lines_than_were_announced_are_left_to_the_definition() -> None:
    text = b"\n".join([plain_row()] * 70)
    assert read_clicks(text, 64, log_of_count(np.arange(9))) is None


@pytest.mark.parametrize("logarithms", [1, 10, 1 << 16])
def test_counts_beyond_the_logarithms_are_handed_out(logarithms: int) -> None:
    text = plain_row(I4="9", I5="10", I6="123456789012") + b"\n"
    columns = read_clicks(text, 1, log_of_count(np.arange(logarithms)))
    assert columns is not None
    columns.dense.reshape(-1)[columns.large_places] = log_of_count(columns.large_counts)
    assert columns.dense[0, 3:6].tolist() == log_of_count(np.array([9, 10, 123456789012])).tolist()
    assert 123456789012 in columns.large_counts


def test_a_block_of_the_usual_size_is_read_alike() -> None:
    rng = np.random.default_rng(1)
    lines = [
        plain_row(
            label=str(rng.integers(2)),
            **{f"I{i}": "" if rng.random() < 0.3 else str(int(rng.lognormal(4, 4)) - 1) for i in range(1, 14)},
            **{f"C{i}": "" if rng.random() < 0.2 else f"{rng.integers(1 << 32):08x}" for i in range(1, 27)},
        )
        for _ in range(1000)
    ]
    text = b"\n".join(lines * 8)
    assert is_read_natively(text)
    assert_read_alike(text)


def test_columns_without_missing_values_have_no_validity_bits() -> None:
    rows, _ = NATIVE(plain_row(C3="") + b"\n")
    assert [rows.column(name).null_count for name in ("C2", "C3")] == [0, 1]
    assert rows.column("C2").buffers()[0] is None
    assert isinstance(rows, pa.RecordBatch)
