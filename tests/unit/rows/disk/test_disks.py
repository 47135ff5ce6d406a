"""Disks and file systems that fail, are full, or know less than others; and the file that rows have there."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import CapacityError, ConfigError, FileError
from bagpipe_hpc.kernels.block_file import NativeBlockFile
from bagpipe_hpc.mpi.waiting import wait_until
from bagpipe_hpc.rows.disk import block_file
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.block_file import NO_BLOCK, OpenBlockFile, disk_unit, frame_memory, open_unnamed
from tests.unit.rows.disk.small_stores import FILES, ROWS, fill, new_store


@FILES
def test_a_disk_that_fails_is_named(folder: str, open_file: OpenBlockFile) -> None:
    """Here it can be written alone."""
    store = new_store(folder, open_file)
    fill(store)
    write_only = os.open(os.devnull, os.O_WRONLY)
    os.dup2(write_only, store._file._descriptor)  # type: ignore[attr-defined]
    os.close(write_only)
    with pytest.raises(FileError, match=r"rows of this server in .*: block \d+ cannot be read \(Bad file descriptor\)"):
        store.read(np.arange(ROWS))
    store.close()


@FILES
def test_a_file_that_ends_too_early_is_named(tmp_path: Path, open_file: OpenBlockFile) -> None:
    (tmp_path / "file").write_bytes(bytes(6000))
    memory = frame_memory(3, 4096)
    file = open_file(os.open(tmp_path / "file", os.O_RDWR), memory, 4096, "rows")
    none = np.full(1, NO_BLOCK)
    assert file.submit(np.zeros(1, np.int64), none, np.zeros(1, np.int64)) == 1
    wait_until(lambda: file.done() == 1, "block 0", timeout_s=10)
    file.submit(np.ones(1, np.int64), none, np.ones(1, np.int64))
    with pytest.raises(FileError, match=r"rows: block 1 cannot be read \(the file ends there\)"):
        wait_until(lambda: file.done() == 2, "block 1", timeout_s=10)
    file.close()


@FILES
def test_a_disk_that_takes_nothing_is_named(folder: str, open_file: OpenBlockFile) -> None:
    store = new_store(folder, open_file)
    read_only = os.open(__file__, os.O_RDONLY)
    os.dup2(read_only, store._file._descriptor)  # type: ignore[attr-defined]
    os.close(read_only)
    with pytest.raises(FileError, match=r"cannot be written .*Bad file descriptor"):
        DiskRows(store)[:] = 1.0
    store.close()


def test_the_file_has_no_name_and_its_space_is_there(tmp_path: Path) -> None:
    store = new_store(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(store._file._descriptor).st_blocks * 512 >= store.layout.file_bytes  # type: ignore[attr-defined]
    store.close()


def test_a_file_system_that_knows_no_unnamed_files_gets_one_without_a_name_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_open = os.open

    def refusing(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return true_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", refusing)
    store = new_store(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    table = fill(store)
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table)
    store.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"tables.ssd_path = '.*nowhere': is no folder on this host"):
        new_store(str(tmp_path / "nowhere"))


def test_a_memory_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system calls it; but for a test that says so, or one that knows no direct reads."""
    shm = Path("/dev/shm")
    if shm.is_dir() and os.access(shm, os.W_OK):
        with pytest.raises(ConfigError, match=r"'/dev/shm': (lies in a memory file system|.* knows no direct reads)"):
            open_unnamed(str(shm))
    monkeypatch.setattr(block_file, "is_in_memory", lambda _: True)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(ConfigError, match=r"so all rows would take memory, whatever tables.memory_gb says; name a"):
        open_unnamed(str(tmp_path))
    os.close(open_unnamed(str(tmp_path), may_be_memory=True))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_file_system_that_takes_no_space_in_advance_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refusing)
    with pytest.raises(ConfigError, match=r"takes no space in advance \(fallocate\).* name a folder on a local disk"):
        new_store(str(tmp_path))


@FILES
def test_calls_that_the_system_cuts_short_go_on(
    folder: str, open_file: OpenBlockFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python, which can be made to see some; the native file has the same loop."""
    for name in ("preadv", "pwritev"):
        true_call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda at, parts, offset, call=true_call: call(at, [parts[0][:512]], offset))
    store = new_store(folder, open_file)
    assert store.layout.block_bytes > 512
    table = fill(store)
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table)
    store.close()


def test_a_thread_that_dies_of_anything_is_heard_of(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(*_: Any) -> int:
        raise MemoryError("no page")

    store = new_store(folder)
    monkeypatch.setattr(os, "pwritev", dying)
    with pytest.raises(MemoryError, match="no page"):
        DiskRows(store)[:] = 1.0
    store.close()


def test_a_file_is_closed_once(folder: str) -> None:
    file = NativeBlockFile(open_unnamed(folder, may_be_memory=True), frame_memory(1, 512), 512, "rows")
    file.close()
    file.close()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CapacityError, match=r"take 0.000 GB there, for which there is no room .*No space left"):
        new_store(str(tmp_path))


def test_a_disk_of_pages_has_blocks_of_pages(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here smaller writes are refused."""
    true_write = os.pwritev

    def refusing(descriptor: int, parts: list[memoryview], offset: int) -> int:
        if len(parts[0]) < 4096:
            raise OSError(errno.EINVAL, "Invalid argument")
        return true_write(descriptor, parts, offset)

    assert disk_unit(folder, may_be_memory=True) in (512, 4096)
    monkeypatch.setattr(os, "pwritev", refusing)
    assert disk_unit(folder, may_be_memory=True) == 4096
    store = new_store(folder, memory_bytes=100_000)
    assert store.layout.block_bytes == 4096
    store.close()
