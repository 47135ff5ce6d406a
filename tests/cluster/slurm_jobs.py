"""Submit jobs to the Slurm of `tests/cluster/with_slurm.sh`, follow them, and switch nodes off."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.killed_runs import has_trained
from tests.ranks import ROOT

LIMIT_S = 240.0
"""Longest wait for anything: several times what it takes on a busy machine."""


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """What a command prints, in this environment or another; fails with its errors where it fails."""
    ended = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=dict(env or os.environ),
        timeout=LIMIT_S,
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@dataclass(frozen=True)
class Job:
    """A batch job.

    Attributes:
        number: its number.
        log: the file with its output.
    """

    number: str
    log: Path

    def field(self, name: str) -> str:
        """A field of `scontrol show job`; of a heterogeneous job that of its first component."""
        shown = run("scontrol", "--oneliner", "show", "job", self.number)
        found = re.search(rf"\b{name}=(\S*)", shown)
        assert found, shown
        return found[1]

    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def lines(self, pattern: str) -> list[str]:
        """Those lines of its output that match."""
        return [line for line in self.output().splitlines() if re.search(pattern, line)]

    def await_line(self, pattern: str, times: int = 1) -> None:
        """Until it has printed so many lines that match."""
        self._await(lambda: len(self.lines(pattern)) >= times)

    def _await(self, is_time: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_time():
            assert self.field("JobState") not in _ENDED, self._story()
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.1)

    def await_training(self, output: Path) -> None:
        """Until the run that writes to a folder has trained for 28 steps: a checkpoint every 11 is there."""
        self._await(lambda: has_trained(output, 28))

    def await_end(self) -> str:
        """Until it has ended for good; how."""
        deadline = time.monotonic() + LIMIT_S
        while (state := self.field("JobState")) not in _ENDED:
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.2)
        return state

    def await_success(self) -> None:
        """Until it has ended well."""
        assert self.await_end() == "COMPLETED", self._story()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the job's script alone, as `--signal=B:...` does when time runs out."""
        run("scancel", "--batch", f"--signal={number.value}", self.number)

    def _story(self) -> str:
        """All that may explain why it did not do what it should."""
        logs = Path(os.environ["EMULATED_SLURM"], "log")
        controller = (logs / "slurmctld.log").read_text(encoding="utf-8", errors="replace").splitlines()
        shown = run("scontrol", "show", "job", self.number)
        return "\n".join([self.output(), shown, run("sinfo", "--Node", "--long"), *controller[-20:]])


_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")


def submit(log: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Job:
    """Submit a job: options of sbatch, the script, its arguments. `env` adds to its environment."""
    number = run("sbatch", "--parsable", f"--output={log}", *arguments, env=os.environ | dict(env or {}))
    return Job(number.strip(), log)


def nodes_of_ranks(output: Path) -> list[tuple[str, str]]:
    """Role and node of every rank of a finished run, in the order of the ranks."""
    ranks = json.loads((output / "resources.json").read_text(encoding="utf-8"))["ranks"]
    return [(rank["role"], rank["host"]) for rank in ranks]


def switch_off(node: str) -> None:
    """Kill every process of a node at once: its first one, and with it the kernel all others, and its network."""
    os.kill(int(Path(os.environ["EMULATED_HOSTS"], f"{node}.pid").read_text()), signal.SIGKILL)
