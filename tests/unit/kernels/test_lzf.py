"""LZF is read back by a plain decoder and the native one, for any bytes; the bytes are shuffled as HDF5 does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.kernels import lzf
from bagpipe_hpc.kernels.shared_library import is_built

pytestmark = pytest.mark.skipif(not is_built("lzf"), reason="native code was not built")

PIECES = st.one_of(
    st.binary(max_size=60),
    st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(1, 400)),
    st.integers(0, 9000).map(bytes),
)

LZF_PIECES = [bytes([count - 1]) + bytes(range(count)) for count in (1, 7, 32)]
"""Bytes as they are, and repetitions of several lengths and distances."""
LZF_PIECES += [
    bytes([min(length - 2, 7) << 5 | (distance - 1) >> 8, *([length - 9] if length >= 9 else []), (distance - 1) & 255])
    for length in (3, 8, 9, 40, 264)
    for distance in (1, 2, 3, 5, 7, 8, 11, 15, 16, 17, 31, 33, 300)
]


def decompress(packed: bytes) -> bytes:
    """LZF as liblzf documents it, one piece after the other."""
    text, at = bytearray(), 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:
            assert at + control < len(packed), "it ends too early"
            text += packed[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += packed[at]
            at += 1
        distance = ((control & 31) << 8 | packed[at]) + 1
        at += 1
        assert distance <= len(text)
        for _ in range(length + 2):
            text.append(text[-distance])
    return bytes(text)


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_any_bytes_come_back(text: bytes) -> None:
    packed = lzf.compress(np.frombuffer(text, dtype=np.uint8))
    if packed is not None:
        assert len(packed) < len(text)
        assert decompress(packed.tobytes()) == text
        unpacked = lzf.decompress(packed, len(text))
        assert unpacked is not None
        assert unpacked.tobytes() == text


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(LZF_PIECES)), max_size=30).map(b"".join))
def test_any_bytes_are_read_as_lzf_or_refused(packed: bytes) -> None:
    found = np.frombuffer(packed, dtype=np.uint8)
    try:
        text = decompress(packed)
    except (IndexError, AssertionError):
        assert all(lzf.decompress(found, size) is None for size in (0, 1, len(packed), 300, 3000))
        return
    for size in {0, len(text) - 1, len(text) + 1} - {-1, len(text)}:
        assert lzf.decompress(found, size) is None
    unpacked = lzf.decompress(found, len(text))
    assert unpacked is not None
    assert unpacked.tobytes() == text


def test_repetitions_of_every_length_and_distance_come_back() -> None:
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, 9000, dtype=np.uint8).tobytes()
    for distance in (*range(1, 18), 31, 255, 256, 257, 4000, 8191, 8192, 8193):
        text = b"".join(noise[:distance] + noise[:length] for length in (3, 4, 8, 9, 10, 263, 264, 265, 600))
        packed = lzf.compress(np.frombuffer(text, dtype=np.uint8))
        if packed is not None:
            assert decompress(packed.tobytes()) == text
            unpacked = lzf.decompress(packed, len(text))
            assert unpacked is not None
            assert unpacked.tobytes() == text


def test_what_repeats_becomes_smaller_and_noise_is_refused() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 5000, dtype=np.uint8)
    assert lzf.compress(noise) is None
    assert lzf.compress(np.zeros(0, dtype=np.uint8)) is None
    zeros = lzf.compress(np.zeros(26400, dtype=np.uint8))
    assert zeros is not None
    assert len(zeros) < 310  # three bytes for each 264


def test_the_same_bytes_always_give_the_same_result() -> None:
    ids = (np.random.default_rng(1).zipf(1.2, (8192, 26)) % 5000).astype(np.int32)
    first, second = lzf.compress(lzf.shuffle(ids)), lzf.compress(lzf.shuffle(ids.copy()))
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 63, 1000])
def test_shuffling_puts_equal_bytes_of_elements_side_by_side(dtype: type, count: int) -> None:
    values = np.random.default_rng(1).integers(0, 100, (count, 2)).astype(dtype)
    expected = values.reshape(-1).view(np.uint8).reshape(-1, values.itemsize).T.reshape(-1)
    assert np.array_equal(lzf.shuffle(values), expected)
    assert np.array_equal(lzf.unshuffle(expected, values.dtype), values.reshape(-1))
