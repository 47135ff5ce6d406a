"""What is made aside appears under its name whole or not at all; what killed processes left is removed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bagpipe_hpc.storage.run_lock import LOCK_NAME
from bagpipe_hpc.storage.scratch_folder import scratch_folder

MAKES_AND_WAITS = """
import sys
from pathlib import Path
from bagpipe_hpc.storage.scratch_folder import scratch_folder
with scratch_folder(Path(sys.argv[1])) as scratch:
    (scratch.path / "rows").write_bytes(b"half")
    print(scratch.path, flush=True)
    sys.stdin.read()
"""


def other_process(output: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a scratch folder, and that one."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_AND_WAITS, output], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_file_takes_its_name_and_nothing_stays(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "found.csv") as scratch:
        assert scratch.path.parent == tmp_path
        (scratch.path / "made").write_bytes(b"rows")
        (scratch.path / "other").write_bytes(b"more")
        scratch.publish(scratch.path / "made")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"found.csv": b"rows"}


def test_a_folder_takes_its_name_without_the_lock(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        with scratch_folder(tmp_path / "model") as scratch:
            (scratch.path / "made").write_bytes(b"rows")
            scratch.publish()
    finally:
        os.umask(mask)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["made"]
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail(made: Path) -> None:
        made.write_bytes(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError), scratch_folder(tmp_path / "found.csv") as scratch:
        fail(scratch.path / "made")
    assert not list(tmp_path.iterdir())


def test_folders_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    name = "found[1].csv"
    process, living = other_process(tmp_path / name)
    killed, _ = other_process(tmp_path / name)
    killed_too, of_another = other_process(tmp_path / "other.csv")
    for victim in (killed, killed_too):
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    (begun := tmp_path / f".{name}.0123abcd.partial").mkdir()
    (unlocked := tmp_path / f".{name}.0123abce.partial").mkdir()
    (full := tmp_path / f".{name}.0123abcf.partial").mkdir()
    (full / "of somebody").touch()
    (own_name := tmp_path / f".{name}.of-mine.partial").mkdir()
    for path in (unlocked, full, own_name):
        os.utime(path, (time.time() - 90, time.time() - 90))
    with scratch_folder(tmp_path / name) as scratch:
        assert {*tmp_path.iterdir()} == {living, of_another, begun, full, own_name, scratch.path}
    lock = living / LOCK_NAME  # as of another host, and silent for longer than clocks of hosts differ
    lock.write_bytes(lock.read_bytes().replace(b'"host": "', b'"host": "far-'))
    for silent_s, stays in ((90, True), (900, False)):
        os.utime(lock, (time.time() - silent_s, time.time() - silent_s))
        with scratch_folder(tmp_path / name):
            assert living.exists() is stays
    process.communicate()


def test_a_name_may_be_as_long_as_names_are(tmp_path: Path) -> None:
    output = tmp_path / ("\N{SNOWMAN}" * 85)
    with scratch_folder(output) as scratch:
        (scratch.path / "made").touch()
        scratch.publish(scratch.path / "made")
    assert list(tmp_path.iterdir()) == [output]
