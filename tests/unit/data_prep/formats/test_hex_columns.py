"""Hexadecimal text and integers are the same values, in both directions."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.formats.hex_columns import format_hex, parse_hex

HEX_VALUES = st.lists(st.none() | st.text("0123456789abcdefABCDEF", min_size=1, max_size=8))


@given(HEX_VALUES)
def test_values_are_those_of_int(texts: list[str | None]) -> None:
    parsed = parse_hex(pa.array([text and text.encode() for text in texts], pa.binary()))
    assert parsed.to_pylist() == [None if text is None else int(text, 16) for text in texts]


@given(HEX_VALUES, st.integers(0, 3))
def test_a_slice_of_a_column_is_read_by_itself(texts: list[str | None], first: int) -> None:
    column = pa.array([text and text.encode() for text in texts], pa.binary()).slice(first)
    assert parse_hex(column).to_pylist() == [None if text is None else int(text, 16) for text in texts[first:]]


@pytest.mark.parametrize("text", [b"0000000g", b"000000000", b"xyz", b"\xff", b"0123 567", b"-1", b"00000001000000020"])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        parse_hex(pa.array([b"00000001", text], pa.binary()))


def test_a_long_value_does_not_hide_behind_a_short_one() -> None:
    with pytest.raises(pa.ArrowInvalid):
        parse_hex(pa.array([b"0000000", b"000000001"], pa.binary()))


def test_formatting_is_the_inverse() -> None:
    values = np.array([0, 1, 0xDEADBEEF, 0xFFFFFFFF], dtype=np.uint32)
    texts = format_hex(values, np.array([False, False, False, True]))
    assert texts.to_pylist() == ["00000000", "00000001", "deadbeef", None]
