"""Memory for one copy does for every later one that is not larger."""

import errno
import mmap
import os
from pathlib import Path

import pytest

from bagpipe_hpc.checkpointing.copy_buffer import CopyBuffer

COLUMNS = 1 << 10
ROWS = 1 << 14  # 64 MiB
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def fill(buffer: CopyBuffer, rows: int) -> bool:
    """Take and use an array, as a checkpoint does; whether there was room."""
    copy = buffer.take(rows, COLUMNS)
    if copy is None:
        return False
    assert copy.shape == (rows, COLUMNS)
    copy[:] = 1.5
    return True


def test_where_the_system_gives_no_memory_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert CopyBuffer(lambda: 1 << 60).take(ROWS, COLUMNS) is None


def test_a_second_copy_needs_no_further_memory() -> None:
    """Where one copy fits and two do not, as the process itself sees it."""
    most = resident_bytes() + ROWS * COLUMNS * 4 * 3 // 2
    buffer = CopyBuffer(lambda: most - resident_bytes())
    assert fill(buffer, ROWS)
    assert fill(buffer, ROWS)
    assert fill(buffer, ROWS // 3)
    assert fill(buffer, ROWS * 5 // 4)  # larger: the first is given back before there is to be room
    assert resident_bytes() < most
    assert not fill(buffer, 2 * ROWS)
    assert fill(buffer, ROWS)


def test_no_room_is_asked_for_what_is_there() -> None:
    rooms = [8 * COLUMNS * 4, 0, 0]
    buffer = CopyBuffer(lambda: rooms.pop(0))
    assert fill(buffer, 8)
    assert fill(buffer, 8)
    assert fill(buffer, 0)
    assert not fill(buffer, 9)
    assert not fill(buffer, 1)
    assert rooms == []


def test_nothing_is_copied_into_nothing() -> None:
    assert fill(CopyBuffer(lambda: 0), 0)
