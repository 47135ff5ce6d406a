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

from bagpipe_hpc.cluster.session_groups import are_sessions_grouped
from bagpipe_hpc.terminal import counted

REPOSITORY = Path(__file__).resolve().parents[2]

_MEASURED = ("bagpipe_hpc", "data_prep", "scripts", "configs", ":(glob)benchmarks/**/*.py")
"""The files of the project that a measurement depends on."""


def conditions() -> dict[str, Any]:
    """Command, commit, machine, whether the kernel groups sessions (autogroup), and load average.

    Taken at the end of a measurement, so that the load covers it.
    """
    return {
        "command": f"{_program()} {shlex.join(sys.argv[1:])}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": f"{_processor()}, {counted(cores(), 'core')}, {_memory_bytes() / 2**30:.0f} GiB",
        "software": f"Python {platform.python_version()}, numpy {np.__version__}",
        "grouped_sessions": are_sessions_grouped(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _memory_bytes() -> int:
    """Memory of the host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _program() -> str:
    """How the command was started: a package's `__main__.py` as `python -m PACKAGE`."""
    program = Path(sys.argv[0])
    return f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name


def _commit() -> str:
    """Short hash of the commit that is checked out, with a plus where the program's files differ from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", *_MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def _processor() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        described = ""
    return processor_name(described) or platform.machine()


def processor_name(cpuinfo: str) -> str:
    """Name of the first processor in the text of Linux's `/proc/cpuinfo`; empty where it has none.

    Some virtual machines shorten the name so that several generations share it ("AMD EPYC"): family and model, which
    are added, tell them apart.
    """
    first, _, _ = cpuinfo.partition("\n\n")
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in fields.items()}
    name = values.get("model name", "")
    if not name or not {"cpu family", "model"} <= values.keys():
        return name
    return f"{name} (family {values['cpu family']}, model {values['model']})"
