"""What the doctor tries on a host, it leaves as it was."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from bagpipe_hpc.tools.doctor import examination


def test_a_full_disk_is_not_left_fuller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    speed, error = examination._try_to_write(tmp_path / "out", "node1")
    assert (speed > 0, error) == (True, "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".bagpipe-doctor.node1"], "other hosts look for it"
    monkeypatch.setattr(os, "fsync", full)
    assert examination._try_to_write(tmp_path / "full", "node1") == (0.0, "[Errno 28] No space left on device")
    assert list((tmp_path / "full").iterdir()) == []
