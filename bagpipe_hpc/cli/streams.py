"""A command's stdout and stderr: a closed one, or one whose disk is full, disturbs a command as little as it can."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

from bagpipe_hpc.errors import refused
from bagpipe_hpc.terminal import line_start, printable

_LAST_STANDARD = 2
"""The file descriptor of stderr, after those of stdin and stdout."""


@contextmanager
def safe_streams() -> Iterator[None]:
    """Guard both streams in the body: what stdout cannot take is an error, what stderr cannot take is lost.

    A stream that the shell has closed (`>&-`) becomes the null device. Where the reader of stdout has gone, a write
    raises `BrokenPipeError`.

    Raises:
        FileError: in the body, from a write to stdout that fails otherwise.
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
    """Write text to stdout for a program to read, with no letter replaced: TOML in UTF-8, arguments as they came."""
    stdout = cast(TextIOWrapper, sys.stdout)
    stdout.reconfigure(encoding=encoding)
    stdout.write(text)


def tell(message: str) -> None:
    """Say on stderr how far a command is: where the reader of stdout has gone, its work goes on."""
    print(f"{line_start()}{printable(message)}", file=sys.stderr, flush=True)


def _open_closed() -> None:
    # Else the next file that is opened gets the descriptor of a closed stream, and a library's messages go into it.
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
    """Send what a stream cannot write to the null device; else the interpreter fails over it when it exits."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # a stand-in for the stream has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _expressible(text: str, stream: TextIO) -> str:
    encoding = stream.encoding
    try:
        text.encode(encoding or "utf-8", stream.errors or "strict")
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


class _Guarded:
    """A stream whose errors go to a function instead; in all else it behaves as the stream.

    Args:
        stream: the stream.
        see: called with the error of a write or flush.
    """

    def __init__(self, stream: TextIO, see: Callable[[OSError], None]) -> None:
        self._stream, self._see = stream, see

    def write(self, text: str) -> int:
        """As the stream's; a letter that its encoding lacks is written as a backslash escape."""
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
