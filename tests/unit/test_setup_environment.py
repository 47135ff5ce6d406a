"""`scripts/setup_environment.sh` asks of its surroundings only what it needs, and names what it lacks."""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path("scripts/setup_environment.sh")


def test_a_service_without_a_home_is_told_what_to_set(tmp_path: Path) -> None:
    """Before anything is made."""
    copy = tmp_path / SCRIPT
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    for absent in ("pyproject.toml", "setup.py", "scripts/constraints.txt"):
        (tmp_path / absent).touch()
    (tmp_path / "bagpipe_hpc/kernels/csrc").mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    ended = subprocess.run([copy], env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("set-up: HOME is not set")
    assert "XDG_CACHE_HOME=" in ended.stderr
    assert not (tmp_path / ".venv").exists()
