"""Blocks of whole lines carry the right text and the right line numbers, whatever the file's compression."""

import bz2
import gzip
import lzma
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_prep.inputs.text_blocks
from bagpipe_hpc.errors import DataError
from data_prep.inputs.text_blocks import TextBlock, TextPosition, count_lines, line_start, read_blocks, split_first_line


def zstd_compress(text: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(text, asbytes=True))


def pzstd_compress(text: bytes) -> bytes:
    """Each frame behind one to be skipped, which has its size."""
    frame = zstd_compress(text)
    return struct.pack("<III", 0x184D2A50, 4, len(frame)) + frame


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd_compress,
    "pzstd": pzstd_compress,
}
LINES = b"".join(b"line %d\r\n" % number if number % 7 == 0 else b"line %d\n" % number for number in range(1, 2000))


def numbered_lines(blocks: Iterable[TextBlock]) -> list[tuple[int, int, bytes]]:
    return [
        (block.start.source, block.start.line + index, line)
        for block in blocks
        for index, line in enumerate(block.text.splitlines())
    ]


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("streams", [1, 2])
def test_text_and_line_numbers(tmp_path: Path, compression: str, streams: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(COMPRESSORS[compression](LINES) for _ in range(streams)))
    blocks = list(read_blocks(path, TextPosition(), block_bytes=1000))
    assert b"".join(block.text for block in blocks) == LINES * streams
    assert len(blocks) > 10
    for block in blocks:
        first = block.text.splitlines()[0]
        assert first == b"line %d" % (block.start.line % 1999 + 1)
    assert blocks[-1].end == TextPosition(0, len(LINES) * streams, 1999 * streams)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_going_on_from_any_block_gives_the_rest(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "lines"
    path.write_bytes(COMPRESSORS[compression](LINES))
    blocks = list(read_blocks(path, TextPosition(), block_bytes=3000))
    for number, block in enumerate(blocks):
        rest = read_blocks(path, block.end, block_bytes=3000)
        assert numbered_lines(rest) == numbered_lines(blocks[number + 1 :])


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_blocks_say_how_much_of_the_file_was_read(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "lines"
    path.write_bytes(COMPRESSORS[compression](LINES))
    blocks = list(read_blocks(path, TextPosition(), block_bytes=3000))
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    assert all(block.file_bytes >= 0 for block in blocks)


_TEXTS = st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r"])).map(b"".join)


@given(_TEXTS, st.integers(1, 9), st.integers(0, 40))
def test_ranges_of_any_size_have_each_line_once(text: bytes, range_bytes: int, more: int) -> None:
    """A range has the lines that begin in it, whatever ends them."""
    block_bytes = 3 + max(map(len, text.splitlines()), default=0) + more
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes(text)
        starts = [line_start(path, at) for at in range(0, len(text), range_bytes)]
        lines: list[bytes] = []
        for start, end in zip(starts, [*starts[1:], None], strict=True) if text else ():
            blocks = list(read_blocks(path, TextPosition(0, start), end, block_bytes))
            found = [line for block in blocks for line in block.text.splitlines()]
            assert sum(block.end.line - block.start.line for block in blocks) == len(found)
            lines += found
        assert lines == text.splitlines()


@pytest.mark.parametrize("size", [100, 4000, len(LINES)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_lines_end_with_any_of_three(tmp_path: Path, size: int, end: bytes) -> None:
    path, lines = tmp_path / "lines", LINES.replace(b"\r\n", b"\n")[:size].splitlines()
    path.write_bytes(end.join(lines))
    blocks = list(read_blocks(path, TextPosition(), block_bytes=101))
    assert [line for block in blocks for line in block.text.splitlines()] == lines
    assert blocks[-1].end == TextPosition(0, path.stat().st_size, len(lines))


def test_a_range_in_an_absurdly_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_prep.inputs.text_blocks, "BLOCK_BYTES", 1000)
    path = tmp_path / "binary"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(DataError, match="binary: no end of line in 1000 bytes from byte 700"):
        line_start(path, 700)
    assert line_start(path, 4500) == 5000


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd", "pzstd"])
def test_a_cut_off_stream_names_its_file(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "cut"
    path.write_bytes(COMPRESSORS[compression](LINES)[:-20])
    with pytest.raises(DataError, match=r"cut: cannot be read .* damaged or cut off"):
        list(read_blocks(path, TextPosition(), block_bytes=1000))


@pytest.mark.parametrize("behind", [b"other bytes", LINES, b"\0" * 7 + b"x"], ids=["few", "rows", "padded"])
@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd", "pzstd"])
def test_what_is_no_compressed_stream_behind_one_is_refused(tmp_path: Path, compression: str, behind: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(COMPRESSORS[compression](LINES) + behind)
    with pytest.raises(DataError, match=r"damaged: cannot be read .* damaged or cut off"):
        list(read_blocks(path, TextPosition(), block_bytes=1000))


def test_padding_of_xz_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "padded"
    path.write_bytes(lzma.compress(LINES) + b"\0" * 8 + lzma.compress(LINES) + b"\0" * 100_000)
    assert b"".join(block.text for block in read_blocks(path, TextPosition())) == LINES * 2


def test_a_file_without_ends_of_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"ok\n" + b"\0" * 5000)
    with pytest.raises(DataError, match="binary: no end of line in 1000 bytes from byte 3"):
        list(read_blocks(path, TextPosition(), block_bytes=1000))


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r"]), min_size=1).map(b"".join))
def test_lines_are_counted_as_splitlines_does(text: bytes) -> None:
    assert count_lines(text) == len(text.splitlines())


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r"]), min_size=1).map(b"".join))
def test_the_first_line_is_that_of_splitlines(text: bytes) -> None:
    lines = text.splitlines()
    line, rest = split_first_line(text)
    assert line == lines[0]
    assert rest.splitlines() == lines[1:]


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbf0\t1\n")
    assert [block.text for block in read_blocks(path, TextPosition())] == [b"0\t1\n"]
