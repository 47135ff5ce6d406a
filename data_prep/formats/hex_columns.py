"""Converts between hexadecimal text columns and 32-bit integers, two digits with each table look-up.

Shapes: `n` values.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DIGITS = 8
"""Most digits of a value: Criteo's are 32-bit hashes."""

_NOT_HEX = 256


def _digit_pairs() -> NDArray[np.uint16]:
    """The value of each pair of characters, read as one 16-bit word; `_NOT_HEX` where they are not two digits."""
    digit = np.full(256, _NOT_HEX, dtype=np.uint16)
    for characters in (b"0123456789abcdef", b"0123456789ABCDEF"):
        digit[np.frombuffer(characters, dtype=np.uint8)] = np.arange(16)
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    first, second = digit[pairs[:, 0]], digit[pairs[:, 1]]
    return np.where((first == _NOT_HEX) | (second == _NOT_HEX), _NOT_HEX, first * 16 + second).astype(np.uint16)


_PAIR_VALUE = _digit_pairs()
_BYTE_TEXT = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)


def parse_hex(column: pa.BinaryArray) -> pa.UInt32Array:
    """Read values of 1 to 8 hexadecimal digits, in either case; leading zeros do not matter. Missing stays missing.

    Args:
        column: text `[n]`, missing values as nulls.

    Returns:
        Unsigned 32-bit values `[n]`, null where `column` is.

    Raises:
        pyarrow.ArrowInvalid: a value is longer or holds another character; which one is for the caller to find.
    """
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    present = len(column) - column.null_count
    lengths = np.diff(offsets)
    if int(lengths.sum()) != present * DIGITS or lengths.max(initial=0) > DIGITS:
        if lengths.max(initial=0) > DIGITS:
            raise pa.ArrowInvalid(f"a value has more than {DIGITS} hexadecimal digits")
        return parse_hex(pc.utf8_lpad(column.cast(pa.string()), DIGITS, "0").cast(pa.binary()))
    if present == 0:
        return pa.nulls(len(column), pa.uint32())
    # A null has no characters, so the characters of all values are contiguous.
    pairs = np.frombuffer(column.buffers()[2], dtype=np.uint16, count=present * (DIGITS // 2), offset=int(offsets[0]))
    parsed = _PAIR_VALUE[pairs]
    if parsed.max() == _NOT_HEX:
        raise pa.ArrowInvalid("a value holds a character that is no hexadecimal digit")
    values = parsed.astype(np.uint8).view(">u4").astype(np.uint32)
    if present == len(column):
        return pa.array(values)
    spread = np.zeros(len(column), dtype=np.uint32)
    missing = lengths == 0
    spread[~missing] = values
    return pa.array(spread, mask=missing)


def format_hex(values: NDArray[np.uint32], missing: NDArray[np.bool_]) -> pa.StringArray:
    """Write values as 8 hexadecimal digits each.

    Args:
        values: uint32 `[n]`.
        missing: bool `[n]`, true where the text is missing (null).
    """
    text = _BYTE_TEXT[values.astype(">u4").view(np.uint8)]
    offsets = np.arange(0, DIGITS * (len(values) + 1), DIGITS, dtype=np.int32)
    validity = np.packbits(~missing, bitorder="little")
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets), pa.py_buffer(text), pa.py_buffer(validity), int(missing.sum())
    )
