"""Where a command speaks: a stream that is closed, or whose disk is full, changes no more than it must."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

from bagpipe_hpc.errors import refused

_LAST_STANDARD = 2
"""The number of stderr, behind those of stdin and stdout."""


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let the body speak: what stdout cannot take is an error, what stderr cannot take is lost.

    What a shell has closed (`>&-`) takes everything. That the reader of stdout has gone is a `BrokenPipeError`.

    Raises:
        FileError: raised in the body by what writes to stdout.
    """
    _open_closed()
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Guarded(stdout, _refuse))
    sys.stderr = cast(TextIO, _Guarded(stderr, lambda _: None))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        for stream in (stdout, stderr):
            _leave_what_is_stuck(stream)


def write_for_programs(text: str, encoding: str) -> None:
    """Write what a program reads to stdout, with no letter replaced: TOML in UTF-8, arguments as they came."""
    stdout = cast(TextIOWrapper, sys.stdout)
    stdout.reconfigure(encoding=encoding)
    stdout.write(text)


def _open_closed() -> None:
    # Else the next file gets the number of one of them, and what a library says on stderr is written into it.
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the end


def _refuse(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise error
    raise refused(error, Path("stdout")) from error


def _leave_what_is_stuck(stream: TextIO) -> None:
    """Let what a stream cannot write go nowhere, else the interpreter fails for it at its end."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # what stands for a stream has no number
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _expressible(text: str, stream: TextIO) -> str:
    encoding = stream.encoding
    try:
        text.encode(encoding or "utf-8", stream.errors or "strict")
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


class _Guarded:
    """A stream that has another say what follows from an error of it; in all else it is the stream.

    Args:
        stream: the stream.
        see: is given the error.
    """

    def __init__(self, stream: TextIO, see: Callable[[OSError], None]) -> None:
        self._stream, self._see = stream, see

    def write(self, text: str) -> int:
        """As the stream's; a letter that its encoding has not becomes what Python writes for it."""
        with self._guarding():
            self._stream.write(_expressible(text, self._stream))
        return len(text)

    def flush(self) -> None:
        """As the stream's."""
        with self._guarding():
            self._stream.flush()

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._see(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
