"""The tutorials of `docs/`, as the reader follows them: files that a page shows are written, its commands are run.

A block of `python` or `toml` with a title is a file of that name; blocks of `bash` are commands; blocks of `text` show
what they print. All of a page is one script, in an empty folder with the checkout's scripts and examples.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fork_server import forked
from tests.ranks import ROOT, rank_environment

PAGES = sorted(path.stem for path in (ROOT / "docs").glob("tutorial-*.md"))
CHECKOUT = (".venv", "configs", "examples", "scripts", "slurm")
"""What a page may use of the checkout that the reader stands in."""

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def script_of(page: Path) -> str:
    """All that a page shows, as a shell script."""
    parts = ["set -euxo pipefail"]
    for language, title, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            parts.append(f"cat >{shlex.quote(title)} <<'END OF FILE'\n{text}END OF FILE")
        elif language == "bash":
            parts.append(text.rstrip("\n"))
        else:
            assert language == "text", f"{page.name}: a block of {language} needs a title"
    return "\n".join(parts)


def shown_by(page: Path) -> list[str]:
    """The lines that a page says its commands print."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [line for language, _, text in blocks if language == "text" for line in text.splitlines()]


def follow(
    page: str, folder: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Do all that a page shows, and wait for the end of it.

    Args:
        page: its name without ending.
        folder: an empty one, in which it happens.
        timeout_s: seconds after which it is ended.
        env: environment variables to add to those of this process.
    """
    for name in CHECKOUT:
        (folder / name).symlink_to(Path(sys.prefix) if name == ".venv" else ROOT / name)
    return subprocess.run(
        ["bash", "-c", script_of(ROOT / "docs" / f"{page}.md")],
        cwd=folder,
        env=rank_environment(env),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
    )


def forking_path(folder: Path) -> dict[str, str]:
    """`PATH` on which `bagpipe` is a fork of a process that has imported torch, and thus starts quickly."""
    folder.mkdir()
    program = folder / "bagpipe"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, forked(["bagpipe"])))} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{rank_environment()['PATH']}"}
