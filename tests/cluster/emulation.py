"""Start commands on emulated hosts through `scripts/emulated_hosts.sh`, or skip a test where there can be none."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.ranks import GRACE_S, ROOT, rank_environment, require_launcher

EMULATED_HOSTS = ROOT / "scripts" / "emulated_hosts.sh"
REFUSED = 2


def require_emulation(*options: str) -> None:
    """Skip the test, with the script's own words, where hosts with these links cannot be made; fail where `CI=true`."""
    require_launcher()
    tried = subprocess.run(
        [str(EMULATED_HOSTS), "--ranks", "1", *options, "true"], capture_output=True, text=True, check=False, timeout=60
    )
    if tried.returncode == REFUSED and os.environ.get("CI") != "true":
        pytest.skip(tried.stderr.strip())
    assert tried.returncode == 0, tried.stderr


def run_on_hosts(
    ranks: str,
    *command: str | Path,
    links: tuple[str, ...] = (),
    share: Path,
    timeout_s: float = 60,
    beside: str = "",
    environment: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` on one rank for each unit of `ranks` (`3,2`: three on the first host, two on the second).

    Args:
        ranks: as `--ranks` takes it.
        command: program and arguments, the same on every rank.
        links: options of the links.
        share: a folder that all hosts see.
        timeout_s: seconds after which the ranks are ended.
        beside: commands for a shell on the router meanwhile, where the cable of `host2` is the device `host2`.
        environment: a virtual environment with another MPI than this process's.

    Returns:
        The finished process; the caller judges its return code.
    """
    count = sum(int(part) for part in ranks.split(","))
    launch = [str(ROOT / "scripts" / "run_ranks.sh"), str(count), *map(str, command)]
    if beside:
        launch = ["bash", "-c", f'( {beside} ) & "$@"', "bash", *launch]
    variables = rank_environment({"RANKS_TIMEOUT_S": str(timeout_s)})
    if environment:
        variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables['PATH']}"
    return subprocess.run(
        [str(EMULATED_HOSTS), "--ranks", ranks, *links, "--share", str(share), *launch],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=ROOT,
        env=variables,
        timeout=timeout_s + GRACE_S,
    )
