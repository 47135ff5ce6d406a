"""Start commands on several MPI ranks, as tests do: through `scripts/run_ranks.sh`, with a time limit."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN_RANKS = ROOT / "scripts" / "run_ranks.sh"
GRACE_S = 40
"""What `run_ranks.sh` may take beyond its limit until the last rank is gone."""

_JOB_VARIABLES = ("PMI_", "PMIX_", "OMPI_COMM_", "PRTE_LAUNCHED", "HYDRA_", "MPIEXEC_")
"""What an MPI that is initialised in this process may have left: with it, a launcher takes itself for a rank."""


def rank_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a launcher: this process's Python and MPI first on PATH, nothing of a job around it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_JOB_VARIABLES)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    environment.update(changes or {})
    return environment


def require_launcher() -> None:
    """Skip the test where there is no mpirun; fail it where `CI=true`, so that CI never passes by skipping."""
    launcher = os.environ.get("MPIRUN", "mpirun").split()[0]
    if shutil.which(launcher, path=rank_environment()["PATH"]) is None:
        message = f"no {launcher} on PATH: run `make setup` and use its environment"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


def run_ranks(
    count: int,
    *command: str | Path,
    timeout_s: float = 120,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` on `count` ranks and wait for its end.

    Args:
        count: number of MPI ranks.
        command: program and arguments, the same on every rank.
        timeout_s: seconds after which the ranks are ended; the return code is then 124 or 137.
        env: environment variables to add to those of this process.
        cwd: working folder; the repository's root where it is not given.

    Returns:
        The finished process with its return code, stdout and stderr of all ranks. The caller judges the return code.
    """
    require_launcher()
    return subprocess.run(
        [str(RUN_RANKS), str(count), *map(str, command)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=cwd or ROOT,
        env=rank_environment({"RANKS_TIMEOUT_S": str(timeout_s), **(env or {})}),
        timeout=timeout_s + GRACE_S,
    )
