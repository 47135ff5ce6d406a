"""Blocks of whole lines out of plain or compressed text files, each with its place, so that any line can be named."""

import bz2
import lzma
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.checked_json import Count

BLOCK_BYTES = 2 << 20
"""Decompressed bytes of a block. The C library maps larger ones anew each time, which costs as much as the reading."""

_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RAW_BYTES = 1 << 16
_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"


@dataclass(frozen=True)
class TextPosition:
    """A place at the start of a line.

    Attributes:
        source: number of the file, from 0.
        offset: decompressed bytes of the file before this place.
        line: lines of the file before this place.
    """

    source: Count = 0
    offset: Count = 0
    line: Count = 0


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of one file.

    Attributes:
        text: the lines, each with its end; only the last of a file may lack it.
        start: where they start.
        end: where the next block starts.
    """

    text: bytes
    start: TextPosition
    end: TextPosition


def read_blocks(sources: Sequence[Path], start: TextPosition, block_bytes: int = BLOCK_BYTES) -> Iterator[TextBlock]:
    """Read files one after the other as blocks of whole lines; memory is that of about two blocks.

    Lines end with LF, CRLF or a lone CR (as pyarrow has it), but at least one LF is needed in every `block_bytes`.

    Args:
        sources: plain text, gzip, bzip2, xz or zstd files, told apart by their first bytes.
        start: where to start, an earlier block's `end`; what lies before it in a compressed file is decompressed again.
        block_bytes: about how many decompressed bytes to give at a time.

    Raises:
        DataError: a file cannot be read, its compressed stream is damaged or cut off, or a line is absurdly long.
    """
    for number in range(start.source, len(sources)):
        place = start if number == start.source else TextPosition(number)
        with _naming(sources[number]), _open_decompressed(sources[number]) as stream:
            _skip(stream, place.offset, block_bytes)
            yield from _blocks_of(stream, sources[number], place, block_bytes)


def first_bytes(source: Path, size: int) -> bytes:
    """The first `size` decompressed bytes of a file, fewer where it is shorter.

    Raises:
        DataError: the file cannot be read, or its compressed stream is damaged or cut off there.
    """
    with _naming(source), _open_decompressed(source) as stream:
        beginning: bytes = stream.read(size)
    return beginning


def split_first_line(text: bytes) -> tuple[bytes, bytes]:
    """The first line without its end, and what follows it."""
    line, _, rest = text.partition(b"\n")
    if b"\r" not in line:
        return line, rest
    line, _, rest = text.partition(b"\r")
    return line, rest.removeprefix(b"\n")


def count_lines(text: bytes) -> int:
    """Lines in a block of whole lines, counting LF, CRLF and lone CR as ends of line."""
    characters = np.frombuffer(text, np.uint8)  # numpy counts them several times as fast as bytes.count.
    ends = int(np.count_nonzero(characters == _LINE_FEED))
    if b"\r" in text:
        ends += int(np.count_nonzero(characters == _CARRIAGE_RETURN)) - text.count(b"\r\n")
    return ends + (not text.endswith((b"\n", b"\r")))


def _blocks_of(stream: IO[bytes], source: Path, place: TextPosition, block_bytes: int) -> Iterator[TextBlock]:
    rest = b""
    while chunk := stream.read(block_bytes):
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            if len(chunk) == block_bytes:
                raise DataError(
                    f"{source}:{place.line + 1}: no end of line in {block_bytes} bytes; is this tab-separated text, "
                    "plain or compressed with gzip, bzip2, xz or zstd?"
                )
            rest += chunk
            continue
        text = b"".join((rest, memoryview(chunk)[:cut]))
        rest = chunk[cut:]
        block = _block(text, place)
        yield block
        place = block.end
    if rest:
        yield _block(rest, place)


def _block(text: bytes, start: TextPosition) -> TextBlock:
    end = TextPosition(start.source, start.offset + len(text), start.line + count_lines(text))
    return TextBlock(text.removeprefix(BYTE_ORDER_MARK) if start.offset == 0 else text, start, end)


@contextmanager
def _open_decompressed(source: Path) -> Iterator[Any]:
    """Open a file for reading its decompressed bytes; `read(n)` gives fewer than n only at the end."""
    with source.open("rb") as raw:
        magic = raw.read(len(_XZ))
    for prefix, decompressor in ((_XZ, lzma.LZMADecompressor), (_BZIP2, bz2.BZ2Decompressor)):
        if magic.startswith(prefix):
            with source.open("rb") as raw:
                yield _FullReads(_Members(raw, decompressor))
            return
    kind = "gzip" if magic.startswith(_GZIP) else "zstd" if magic.startswith(_ZSTD) else None
    with pa.input_stream(str(source), compression=kind) as stream:
        yield _FullReads(stream)


class _Members:
    """Decompresses one compressed stream after the other, up to the end of the file.

    The files of `lzma` and `bz2` end in silence where a later stream is damaged at its beginning.
    """

    def __init__(self, raw: IO[bytes], decompressor: Callable[[], Any]) -> None:
        self._raw = raw
        self._new = decompressor
        self._member = decompressor()

    def read(self, size: int) -> bytes:
        """Read 1 to `size` bytes, none at the end of the last stream."""
        while True:
            compressed = b""
            if self._member.eof:
                compressed = self._member.unused_data.lstrip(b"\0")  # xz may pad its streams with zeros
                while not compressed:
                    if not (more := self._raw.read(_RAW_BYTES)):
                        return b""
                    compressed = more.lstrip(b"\0")
                self._member = self._new()
            elif self._member.needs_input and not (compressed := self._raw.read(_RAW_BYTES)):
                raise EOFError("the file ends before its compressed stream")
            if part := self._member.decompress(compressed, size):
                return bytes(part)


class _FullReads:
    """Repeats short reads: decompressors may give less than asked for in the middle of a file."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer only at the end of the stream."""
        parts: list[bytes] = []
        missing = size
        while missing and (part := self._stream.read(missing)):
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _skip(stream: IO[bytes], size: int, block_bytes: int) -> None:
    while size > 0 and (part := stream.read(min(size, block_bytes))):
        size -= len(part)


@contextmanager
def _naming(source: Path) -> Iterator[None]:
    """Turn the errors of files and decompressors into one that names the file."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(
            f"{source}: cannot be read ({error}); it may be damaged or cut off: check it with gzip -t, "
            "bzip2 -t, xz -t or zstd -t, or fetch it again"
        ) from error
