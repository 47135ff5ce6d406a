"""A file is complete or absent, whatever happens while it is written."""

import errno
import hashlib
import os
import resource
import stat
from pathlib import Path

import pytest

from bagpipe_hpc.errors import FileError, naming_files
from bagpipe_hpc.storage.atomic_write import atomic_write, file_sha256, remove_partial_files, replace_text


def test_success_renames_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "rows.bin"
    with atomic_write(target) as partial:
        partial.write_bytes(b"rows")
        assert partial.parent == tmp_path
        assert not target.exists()
    assert target.read_bytes() == b"rows"
    assert list(tmp_path.iterdir()) == [target]


def test_failure_keeps_the_earlier_file(tmp_path: Path) -> None:
    target = tmp_path / "rows.bin"
    target.write_bytes(b"earlier")
    with pytest.raises(RuntimeError, match="killed"), atomic_write(target) as partial:
        partial.write_bytes(b"half")
        raise RuntimeError("killed")
    assert target.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "rows.bin"):
        pass


@pytest.mark.parametrize("replaces", [False, True])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, *, replaces: bool) -> None:
    """A write that fails names no file, and one that cannot begin the temporary one."""
    target = tmp_path / "rows.bin"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(FileError, match=r"/rows\.bin: File too large; raise the limit"), naming_files():
            write_much(target, replaces=replaces)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileError, match=r"/absent/rows\.bin: No such file"), naming_files():
        write_much(tmp_path / "absent" / "rows.bin", replaces=replaces)


@pytest.mark.parametrize("name", ["a" * 255, "\u00fc" * 127, "a" + "\u00fc" * 127])
def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path, name: str) -> None:
    """That of the temporary file is not longer; two that begin alike do not share one."""
    target, other = tmp_path / name, tmp_path / f"{name[:-1]}b"
    with atomic_write(target) as partial, atomic_write(other) as beside:
        partial.write_bytes(b"rows")
        beside.write_bytes(b"others")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {target: b"rows", other: b"others"}


def test_a_name_that_is_too_long_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=rf"File name too long: '{tmp_path}/a{{256}}'$"),
        atomic_write(tmp_path / ("a" * 256)),
    ):
        pytest.fail("it writes")


def test_an_error_names_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", refuse)
    target = tmp_path / "rows.bin"
    with pytest.raises(OSError, match=r"Disk quota exceeded: '.*rows\.bin'$"), atomic_write(target) as partial:
        partial.write_bytes(b"rows")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_forces_no_folders_to_the_disk_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of a file the same error is one."""
    of_files = []

    def force(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) or of_files:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", force)
    target = tmp_path / "rows.bin"
    with atomic_write(target) as partial:
        partial.write_bytes(b"rows")
    assert target.read_bytes() == b"rows"
    of_files.append(True)
    with pytest.raises(OSError, match=os.strerror(number)), atomic_write(target) as partial:
        partial.write_bytes(b"other")
    assert target.read_bytes() == b"rows"


def write_much(target: Path, *, replaces: bool) -> None:
    if replaces:
        replace_text(target, "rows" * 10)
        return
    with atomic_write(target) as partial:
        partial.write_text("rows" * 10)


def test_remove_partial_files_spares_finished_ones(tmp_path: Path) -> None:
    (tmp_path / ".rows.bin.17.partial").write_bytes(b"half")
    (tmp_path / "rows.bin").write_bytes(b"rows")
    (tmp_path / ".export.4f2a.partial").mkdir()  # of another command (`scratch_folder`), which may be at work
    remove_partial_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".export.4f2a.partial", "rows.bin"]


def test_file_sha256_is_the_digest_of_the_contents(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(b"rows")
    assert file_sha256(path) == hashlib.sha256(b"rows").hexdigest()
