"""Reads plain or compressed text files as blocks of whole lines, with positions, so that messages can name any line."""

import bz2
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from bagpipe_hpc.errors import DataError, refused
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.kernels.text import text_lines
from bagpipe_hpc.storage.checked_json import Count

BLOCK_BYTES = 2 << 20
"""Decompressed bytes of a block. The C library maps larger blocks anew each time, which costs as much as reading."""

_GZIP, _XZ, _BZIP2 = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh"
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + number]) + b"\x2a\x4d\x18" for number in range(16)))
"""First bytes of a zstd frame, and of those that are skipped, with which files of pzstd begin (RFC 8878, 3.1.2)."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RAW_BYTES = 1 << 16
_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"


@dataclass(frozen=True)
class TextPosition:
    """A position at the start of a line.

    Attributes:
        source: number of the file, from 0.
        offset: decompressed bytes of the file before this position.
        line: number of lines from where reading of the file began to this position.
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
        file_bytes: bytes of the file, compressed if it is, that were read for them.
    """

    text: bytes
    start: TextPosition
    end: TextPosition
    file_bytes: int


def read_blocks(
    source: Path, start: TextPosition, end: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[TextBlock]:
    """Read a file, or some of its lines, as blocks of whole lines; memory is that of about two blocks.

    Lines end with LF, CRLF or a lone CR (as in pyarrow); every `block_bytes` must hold the end of a line.

    Args:
        source: a plain text, gzip, bzip2, xz or zstd file, recognised by its first bytes.
        start: where to start, the beginning of a line; what comes before it in a compressed file is decompressed again.
        end: where to stop, the beginning of a line, in decompressed bytes; None reads to the end of the file.
        block_bytes: about how many decompressed bytes to give at a time.

    Raises:
        DataError: the file cannot be read, its compressed stream is damaged or cut off, or a line is absurdly long.
    """
    with _naming(source), _open_decompressed(source, start.offset) as stream:
        if end is not None:
            stream.stop_after(end - start.offset)
        yield from _blocks_of(stream, source, start, block_bytes)


def is_compressed(source: Path) -> bool:
    """Whether a file is of a compressed kind that is decompressed when it is read, by its first bytes.

    Raises:
        DataError: the file cannot be read.
    """
    with _naming(source), source.open("rb") as raw:
        return raw.read(len(_XZ)).startswith((_GZIP, *_ZSTD, _XZ, _BZIP2))


def line_start(source: Path, at: int) -> int:
    """Offset of the first line of a plain file that begins at byte `at` or later; the file's size if there is none.

    Raises:
        DataError: the file cannot be read, or no line begins within `BLOCK_BYTES`.
    """
    if at == 0:
        return 0
    with _naming(source), source.open("rb") as file:
        file.seek(at - 1)
        text = file.read(BLOCK_BYTES + 2)
    feed, lone = text.find(b"\n"), text.find(b"\r", 0, BLOCK_BYTES)
    if lone >= 0 and lone + 1 != feed and (feed < 0 or lone < feed):
        return at + lone  # A line begins after a CR that no LF follows.
    if feed >= 0:
        return at + feed
    if len(text) <= BLOCK_BYTES:
        return at - 1 + len(text)
    raise _no_line_end(source, at, BLOCK_BYTES)


def first_bytes(source: Path, size: int) -> bytes:
    """The first `size` decompressed bytes of a file, fewer where it is shorter.

    Raises:
        DataError: the file cannot be read, or its compressed stream is damaged or cut off there.
    """
    with _naming(source), _open_decompressed(source, 0) as stream:
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
    return _line_end_counter()(text) + (not text.endswith((b"\n", b"\r")))


def count_line_ends(text: bytes) -> int:
    """Ends of line in a text: LF, CRLF and lone CR."""
    characters = np.frombuffer(text, np.uint8)  # numpy counts them several times as fast as bytes.count.
    ends = int(np.count_nonzero(characters == _LINE_FEED))
    if b"\r" in text:
        ends += int(np.count_nonzero(characters == _CARRIAGE_RETURN)) - text.count(b"\r\n")
    return ends


@cache
def _line_end_counter() -> Callable[[bytes], int]:
    """Counts ends of line, in native code if it was built."""
    return text_lines.count_line_ends if is_built("text_lines") else count_line_ends


def _blocks_of(stream: "_FullReads", source: Path, place: TextPosition, block_bytes: int) -> Iterator[TextBlock]:
    rest, read_before = b"", stream.file_bytes()
    while chunk := stream.read(block_bytes):
        cut = _end_of_lines(chunk)
        if cut == 0:
            if len(chunk) == block_bytes:
                raise _no_line_end(source, place.offset, block_bytes)
            rest += chunk
            continue
        text = b"".join((rest, memoryview(chunk)[:cut]))
        rest, read = chunk[cut:], stream.file_bytes()
        block = _block(text, place, read - read_before)
        yield block
        place, read_before = block.end, read
    if rest:
        yield _block(rest, place, stream.file_bytes() - read_before)


def _no_line_end(source: Path, at: int, block_bytes: int) -> DataError:
    return DataError(
        f"{source}: no end of line in {block_bytes} bytes from byte {at}; is this text with a sample a line, plain or "
        "compressed with gzip, bzip2, xz or zstd?"
    )


def _end_of_lines(chunk: bytes) -> int:
    """Where the last whole line of a chunk ends; 0 without one. A CR at the end may be the first half of a CRLF."""
    cut = chunk.rfind(b"\n") + 1
    return cut or chunk.rfind(b"\r", 0, len(chunk) - 1) + 1


def _block(text: bytes, start: TextPosition, file_bytes: int) -> TextBlock:
    end = TextPosition(start.source, start.offset + len(text), start.line + count_lines(text))
    return TextBlock(text.removeprefix(BYTE_ORDER_MARK) if start.offset == 0 else text, start, end, file_bytes)


@contextmanager
def _open_decompressed(source: Path, offset: int) -> Iterator["_FullReads"]:
    """Open a file for reading its decompressed bytes from `offset` on."""
    with source.open("rb") as raw:
        magic = raw.read(len(_XZ))
        raw.seek(0)
        for prefix, decompressor in ((_XZ, lzma.LZMADecompressor), (_BZIP2, bz2.BZ2Decompressor)):
            if magic.startswith(prefix):
                yield _FullReads(_Members(raw, decompressor), raw.tell).behind(offset)
                return
    with pa.OSFile(str(source)) as file:
        if (kind := "gzip" if magic.startswith(_GZIP) else "zstd" if magic.startswith(_ZSTD) else None) is None:
            file.seek(min(offset, file.size()))
            yield _FullReads(file, file.tell)
        else:
            with pa.CompressedInputStream(file, kind) as stream:
                yield _FullReads(stream, file.tell).behind(offset)


class _Members:
    """Decompresses one compressed stream after the other, up to the end of the file.

    The file objects of `lzma` and `bz2` end without an error if a later stream is damaged at its beginning.
    """

    def __init__(self, raw: IO[bytes], decompressor: Callable[[], Any]) -> None:
        self._raw = raw
        self._new = decompressor
        self._member = decompressor()

    def read(self, size: int) -> bytes:
        """Read 1 to `size` bytes; none at the end of the last stream."""
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
    """Repeats short reads: decompressors may give less than asked for in the middle of a file.

    Args:
        stream: gives decompressed bytes.
        file_bytes: returns how many bytes of the file were read so far.
    """

    def __init__(self, stream: Any, file_bytes: Callable[[], int]) -> None:
        self.file_bytes = file_bytes
        self._stream = stream
        self._left: int | None = None

    def stop_after(self, size: int) -> None:
        """End the stream after the next `size` bytes."""
        self._left = size

    def behind(self, size: int) -> "_FullReads":
        """Skip `size` bytes; returns the stream."""
        while size > 0 and (part := self.read(min(size, BLOCK_BYTES))):
            size -= len(part)
        return self

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer only at the end."""
        missing = size if self._left is None else min(size, self._left)
        parts: list[bytes] = []
        while missing and (part := self._stream.read(missing)):
            parts.append(part)
            missing -= len(part)
        text = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._left is not None:
            self._left -= len(text)
        return text


@contextmanager
def _naming(source: Path) -> Iterator[None]:
    """Turn the errors of files and decompressors into one that names the file."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno:  # the system's, not that of a decompressor
            raise refused(error, source) from error
        raise DataError(
            f"{source}: cannot be read ({error}); it may be damaged or cut off: check it with gzip -t, "
            "bzip2 -t, xz -t or zstd -t, or fetch it again"
        ) from error
