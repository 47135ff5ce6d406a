"""The files that names and glob patterns stand for; each is checked before any of them is read to the end."""

import contextlib
import errno
import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from bagpipe_hpc.errors import DataError, not_text
from data_prep.formats.layout import TextFields
from data_prep.inputs.text_blocks import BLOCK_BYTES, BYTE_ORDER_MARK, first_bytes, split_first_line

_NO_PIPE = (
    "inputs are files, known by name, size and time of change, so that a preparation can go on after an "
    "interruption; write the rows to a file first"
)
_SHOWN_CHARACTERS = 200
_TAR_MAGIC, _TAR_OFFSET = b"ustar", 257
_ARCHIVES = {
    b"PK\x03\x04": ("a zip archive", "unpack it first, as with unzip -p {0} > clicks.tsv"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it first"),
    b"\x04\x22\x4d\x18": ("compressed with lz4", "unpack it first, or compress it with zstd"),
    b"\x1f\x9d": ("compressed with compress", "unpack it first, as with uncompress {0}"),
    b"\x89HDF": ("an HDF5 file", "name the raw clicks; shards that are prepared already are for bagpipe train"),
    b"\xff\xfe": ("text in UTF-16", "convert it first, as with iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "convert it first, as with iconv -f UTF-16 -t UTF-8"),
}
"""First bytes of files that are not read, what such a file is, and what to do with it."""


def find_sources(patterns: Sequence[str]) -> list[Path]:
    """The files that names and glob patterns stand for.

    Args:
        patterns: file names or patterns. Their order is kept; the files of one pattern are sorted with numbers by
            value, so that day_2 comes before day_10.

    Raises:
        DataError: a pattern matches nothing, or something that is not a file; or a file is named twice, is empty, is of
            a kind that is not read, or has a name that is no text.
        OSError: a folder may not be searched.
    """
    sources: list[Path] = []
    for pattern in patterns:
        # A name that exists is taken literally, even if it holds brackets.
        names = [pattern] if not_text(pattern) or os.path.lexists(pattern) else _matching(pattern)
        for name in names:
            if problem := not_text(name):  # pyarrow takes no such name
                raise DataError(f"{name!r}: {problem}")
        files = [Path(name) for name in names]
        if "**" in pattern:  # it matches folders, too
            files = [file for file in files if not os.path.isdir(file)]  # noqa: PTH112
        if not files:
            if pattern == "-":
                raise DataError(f"-: {_NO_PIPE}")
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                Path(pattern).lstat()  # the system's error names a folder that may not be searched
            _require_reach(pattern)
            named = pattern or repr(pattern)
            raise DataError(f"{named}: no such input file; check the path, and quote patterns such as 'day_*.gz'")
        sources += files
    for source in sources:
        try:
            _require_file(source)
        except OSError as error:
            raise DataError(f"{source}: cannot be read ({error.strerror}); check its folders' permissions") from error
    resolved: set[Path] = set()
    for source in sources:
        if source.resolve() in resolved:
            raise DataError(f"{source}: named twice among the inputs; name it once, or its rows count twice")
        resolved.add(source.resolve())
    for source in sources:
        _require_text(source)
    return sources


def _require_reach(pattern: str) -> None:
    try:
        os.lstat(pattern)
    except PermissionError as error:
        raise DataError(f"{pattern}: cannot be read ({error.strerror}); check its folders' permissions") from error
    except OSError:
        return


def _require_file(source: Path) -> None:
    if source.is_dir():
        raise DataError(f"{source}: is a folder; name the files in it, such as '{source}/day_*'")
    if source.is_symlink() and _leads_in_a_circle(source):
        raise DataError(f"{source}: its links lead in a circle; correct or remove it")
    if source.is_symlink() and not source.exists():
        raise DataError(f"{source}: is a link to {source.readlink()}, which does not exist; correct or remove it")
    if not source.is_file():
        raise DataError(f"{source}: is a pipe or a device; {_NO_PIPE}")


def _leads_in_a_circle(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _require_text(source: Path) -> None:
    """Refuse a file that cannot hold rows, before hours are spent on the files before it."""
    beginning = first_bytes(source, _TAR_OFFSET + len(_TAR_MAGIC))
    if not beginning:
        raise DataError(f"{source}: is empty; leave it out, or fetch it again")
    if beginning[_TAR_OFFSET:] == _TAR_MAGIC:
        raise DataError(f"{source}: is a tar archive; unpack it first with tar -xf, and name the files in it")
    for magic, (what, cure) in _ARCHIVES.items():
        if beginning.startswith(magic):
            raise DataError(f"{source}: is {what}, which is not read; {cure.format(source)}")


def check_header(source: Path, layout: TextFields) -> None:
    """Refuse a file whose first line is not the header that its format has, before hours are spent on the others.

    Raises:
        DataError: the header of the file names other columns, or names them in another order.
    """
    if not layout.header:
        return
    line = first_line(source)
    if not layout.is_header(line):
        wanted = layout.separator.join(layout.names)
        raise DataError(
            f"{source}:1: the header is {_shown(line)} instead of {_shown(wanted)}; each file begins with the "
            "names of its columns in this order: name files of the format, or correct its description"
        )


def first_line(source: Path) -> str:
    """The first line of a text, without its end and without a byte order mark.

    Raises:
        DataError: the file cannot be read, or its compressed stream is damaged there.
    """
    found = split_first_line(first_bytes(source, BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK))[0]
    return found.decode(errors="replace")


def first_row(source: Path) -> str:
    """The first line that is not empty, as for `first_line`; empty where the first block has none."""
    line, rest = b"", first_bytes(source, BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while rest and not line:
        line, rest = split_first_line(rest)
    return line.decode(errors="replace")


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "...")


def order_note(sources: Sequence[Path]) -> str | None:
    """A note about files in a shell's order, such as day_10 before day_2; None for any other order."""
    names = [str(source) for source in sources]
    by_number = sorted(names, key=_by_number)
    if names == by_number or names != sorted(names):
        return None
    first = next(index for index, name in enumerate(names) if name != by_number[index])
    return (
        f"note: {Path(names[first]).name} is read before {Path(by_number[first]).name}, as it was named; "
        "if that is not their time order, quote the pattern, and its files are sorted by number"
    )


def _matching(pattern: str) -> list[str]:
    # Path.glob takes no absolute patterns, which shells and job scripts often pass.
    return sorted(glob.glob(pattern, recursive=True), key=_by_number)  # noqa: PTH207


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
