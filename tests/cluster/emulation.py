"""Start commands on emulated hosts through `scripts/emulated_hosts.sh`, or skip a test where there can be none."""

import subprocess
from pathlib import Path

import pytest

from tests.ranks import GRACE_S, ROOT, rank_environment, require_launcher

EMULATED_HOSTS = ROOT / "scripts" / "emulated_hosts.sh"
REFUSED = 2


def require_emulation(*options: str) -> None:
    """Skip the test, with the script's own words, where hosts with these links cannot be made."""
    require_launcher()
    tried = subprocess.run(
        [str(EMULATED_HOSTS), "--ranks", "1", *options, "true"], capture_output=True, text=True, check=False, timeout=60
    )
    if tried.returncode == REFUSED:
        pytest.skip(tried.stderr.strip())
    assert tried.returncode == 0, tried.stderr


def run_on_hosts(
    ranks: str,
    *command: str | Path,
    links: tuple[str, ...] = (),
    share: Path,
    timeout_s: float = 60,
    meanwhile: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run `command` on one rank for each unit of `ranks` (`3,2`: three on the first host, two on the second).

    Args:
        ranks: as `--ranks` takes it.
        command: program and arguments, the same on every rank.
        links: options of the links.
        share: a folder that all hosts see.
        timeout_s: seconds after which the ranks are ended.
        meanwhile: shell commands that run beside the ranks where the hosts' cables end: `ip link set host2 down` cuts
            one.

    Returns:
        The finished process; the caller judges its return code.
    """
    count = sum(int(part) for part in ranks.split(","))
    launch = [str(ROOT / "scripts" / "run_ranks.sh"), str(count), *map(str, command)]
    if meanwhile:
        launch = ["bash", "-c", f'({meanwhile}) & exec "$0" "$@"', *launch]
    return subprocess.run(
        [str(EMULATED_HOSTS), "--ranks", ranks, *links, "--share", str(share), *launch],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=ROOT,
        env=rank_environment({"RANKS_TIMEOUT_S": str(timeout_s)}),
        timeout=timeout_s + GRACE_S,
    )
