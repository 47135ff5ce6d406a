"""The conditions of a measurement: code, machine and its load, as every benchmark reports them."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]


def conditions() -> dict[str, Any]:
    """Command, commit, machine and load average; taken at the end of a measurement, so that the load covers it."""
    return {
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": f"{_processor()}, {cores()} cores, {_memory_bytes() / 2**30:.0f} GiB",
        "software": f"Python {platform.python_version()}, numpy {np.__version__}",
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _memory_bytes() -> int:
    """Memory of the host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _program() -> str:
    return "bagpipe" if Path(sys.argv[0]).name in ("bagpipe", "__main__.py") else Path(sys.argv[0]).name


def _commit() -> str:
    """Short hash of the commit that is checked out, with a plus where the program's files differ from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "bagpipe_hpc", "data_prep", "scripts", "configs")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
