"""`scripts/setup_environment.sh` asks of its surroundings only what it needs, and names what it lacks."""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path("scripts/setup_environment.sh")


def set_up(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start the script in a checkout that has nothing but it; it fails before it makes anything."""
    copy = folder / SCRIPT
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    for absent in ("pyproject.toml", "setup.py", "scripts/constraints.txt"):
        (folder / absent).touch()
    (folder / "bagpipe_hpc/kernels/csrc").mkdir(parents=True)
    ended = subprocess.run([copy], env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert not (folder / ".venv").exists()
    return ended


def test_a_service_without_a_home_is_told_what_to_set(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    said = set_up(tmp_path, **environment).stderr
    assert said.startswith("set-up: HOME is not set")
    assert "XDG_CACHE_HOME=" in said


def test_an_old_compiler_is_refused_by_its_version(tmp_path: Path) -> None:
    """Before minutes of downloads: Red Hat 8 comes with version 8."""
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho 8.5.0\n")
    compiler.chmod(0o755)
    environment = {**os.environ, "PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    said = set_up(tmp_path, **environment).stderr
    assert said.startswith("set-up: g++ is version 8.5.0, and the native code needs 11 or newer")
