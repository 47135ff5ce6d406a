"""Pipes that nobody reads any more, as that of stdout behind `head`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


@contextmanager
def without_reader() -> Iterator[TextIO]:
    """A stream into a pipe whose reader has gone: what is written there raises `BrokenPipeError`."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", encoding="utf-8")
    yield stream
    with suppress(BrokenPipeError):
        stream.close()
