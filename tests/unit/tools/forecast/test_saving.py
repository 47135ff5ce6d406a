"""Plans are saved only where there is a folder to write to."""

import os
from pathlib import Path

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.forecast.saving import require_folder


def test_a_folder_is_made_unless_it_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        require_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("lacking", [os.W_OK, os.X_OK])
def test_a_folder_that_cannot_be_written_to_is_refused(
    lacking: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _, wanted: not wanted & lacking)
    with pytest.raises(ConfigError, match=r"--save .*: cannot be written to; name another folder"):
        require_folder(tmp_path)
