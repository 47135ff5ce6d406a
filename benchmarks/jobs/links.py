"""The links that a benchmark compares, and ranks started over them: on one host, emulated ones or a job's nodes."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report

_EMULATED_HOSTS = REPOSITORY / "scripts" / "emulated_hosts.sh"
_RUN_RANKS = REPOSITORY / "scripts" / "run_ranks.sh"
_REFUSED = 2
"""Status of `emulated_hosts.sh` where hosts cannot be made."""


@dataclass(frozen=True)
class Link:
    """What joins the hosts.

    Attributes:
        name: as the command line and the tables say it.
        gbit_per_s: bandwidth of each host, each way; 0 means that all ranks are on one host.
        latency_us: from host to host, one way.
    """

    name: str
    gbit_per_s: float = 0.0
    latency_us: float = 0.0

    @property
    def is_emulated(self) -> bool:
        """Whether there are several hosts."""
        return self.gbit_per_s > 0

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth in bytes; infinite on one host."""
        return self.gbit_per_s * 1e9 / 8 if self.is_emulated else float("inf")

    def options(self) -> list[str]:
        """The link as options of `emulated_hosts.sh`."""
        latency = ["--latency", f"{self.latency_us:g}us"] if self.latency_us else []
        return ["--bandwidth", f"{self.gbit_per_s:g}gbit", *latency]


NODES = Link("nodes")
"""What joins the nodes of the job that a benchmark runs in; their launcher is in the environment, `MPIRUN`."""

LINKS = {link.name: link for link in (Link("native"), Link("10gbit", 10.0), Link("1gbit", 1.0, 500.0))}
"""The links of the targets, by name; `1gbit` has half a millisecond of latency as well."""

SLOW_LINKS = {link.name: link for link in (Link("30mbit", 0.03), Link("100mbit", 0.1), Link("300mbit", 0.3))}
"""So slow that two cores are idle while many ranks wait for them."""


class RanksFailedError(BagpipeError):
    """Ranks that a benchmark started ended with an error."""


def refusal(link: Link) -> str | None:
    """Why there is no such link here, where it cannot be emulated in the script's words; None where there is."""
    if link == NODES and "MPIRUN" not in os.environ:
        return "MPIRUN does not say how ranks are started on several nodes, such as MPIRUN='srun --mpi=pmix'"
    if not link.is_emulated:
        return None
    tried = subprocess.run(
        [str(_EMULATED_HOSTS), "--ranks", "1,1", *link.options(), "true"], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip() if tried.returncode == _REFUSED else None


def usable_links(links: Iterable[Link], report: Report) -> list[Link]:
    """Those that there are here; the report says why others are left out."""
    usable = []
    for link in links:
        if reason := refusal(link):
            say_left_out(report, link.name, reason)
        else:
            usable.append(link)
    return usable


def say_left_out(report: Report, link: str, reason: str) -> None:
    """Say in a report, and in its JSON line, that nothing was measured over a link."""
    report.lines.append(f"link {link} left out: {reason}")
    report.figures.setdefault("links_left_out", []).append(link)


def run_ranks(
    ranks_of_hosts: Sequence[int], link: Link, command: Sequence[str | Path], share: Path, timeout_s: float = 1800.0
) -> str:
    """Run a command on MPI ranks: on one host, or on as many emulated ones as `ranks_of_hosts` is long.

    Args:
        ranks_of_hosts: ranks on each host, in rank order; on the nodes of a job its launcher places them.
        link: what joins the hosts.
        command: program and arguments, the same on every rank.
        share: folder that all hosts see.
        timeout_s: seconds after which the ranks are ended.

    Returns:
        What the ranks printed.

    Raises:
        RanksFailedError: they ended with an error; the message shows what they printed.
    """
    launch = [str(_RUN_RANKS), str(sum(ranks_of_hosts)), *map(str, command)]
    if link.is_emulated:
        places = ",".join(map(str, ranks_of_hosts))
        launch = [str(_EMULATED_HOSTS), "--ranks", places, *link.options(), "--share", str(share), "--", *launch]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    ended = subprocess.run(
        launch,
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path, "RANKS_TIMEOUT_S": f"{timeout_s:g}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        raise RanksFailedError(f"{ended.stdout}\nthe ranks ended with status {ended.returncode} (link {link.name})")
    return ended.stdout
