"""One measured training job: starts it, and reads what it wrote."""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.config.schema import LookaheadConfig
from benchmarks.jobs.links import LINKS, Link, run_ranks
from benchmarks.jobs.other_load import OtherLoad
from benchmarks.jobs.own_settings import require_free
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.workload import WORKLOADS, Workload
from benchmarks.step.figures import RECORD_STEPS, StepFigures

SERVERS = 2
"""Of a job that does not say how many."""


@dataclass(frozen=True)
class Job:
    """What is run.

    Attributes:
        workload: configuration and clicks.
        link: what joins the hosts.
        trainers: number T.
        lookahead: window L.
        spread: each trainer has a host of its own; else all trainers share one.
        servers: number S of embedding servers.
        servers_apart: each server has a host of its own; else all are on the oracle's.
    """

    workload: Workload
    link: Link
    trainers: int
    lookahead: int
    spread: bool
    servers: int = SERVERS
    servers_apart: bool = False

    @property
    def server_hosts(self) -> int:
        """Hosts with servers."""
        return self.servers if self.servers_apart else 1

    @property
    def ranks_of_hosts(self) -> list[int]:
        """Ranks on each host, in rank order."""
        if not self.link.is_emulated:
            return [RoleLayout(self.servers, self.trainers).world_size]
        front = [1] * (1 + self.servers) if self.servers_apart else [1 + self.servers]
        return front + ([1] * self.trainers if self.spread else [self.trainers])

    def __str__(self) -> str:
        return f"{self.workload.name}, {self.link.name}, T = {self.trainers}, L = {self.lookahead}"


@dataclass(frozen=True)
class JobResult:
    """What came out.

    Attributes:
        figures: of the steady state.
        summary: the run's `summary.json`.
        others_share: share of the cores that other programs used meanwhile.
    """

    figures: StepFigures
    summary: dict[str, Any]
    others_share: float


def steady_steps(lookahead: int, measured: int) -> StepRange:
    """The steps that count of a job with this look-ahead."""
    return StepRange.steady(LookaheadConfig(lookahead), measured, every=RECORD_STEPS)


def own_settings(job: Job, shards: Path, steps: StepRange, output: Path) -> list[str]:
    """What a job sets itself, each `section.field=value`."""
    return [
        f"data.path={shards}",
        "data.verify=quick",
        f"lookahead.batches={job.lookahead}",
        "lookahead.group=0",
        f"roles.servers={job.servers}",
        "roles.placement=rank_order",
        f"train.max_steps={steps.total}",
        "train.epochs=1",
        "train.evaluate=false",
        "train.checkpoint_at_end=false",
        f"train.log_every_steps={RECORD_STEPS}",
        f"train.output={output}",
    ]


def check_overrides(overrides: list[str]) -> None:
    """See that further settings are none that every job sets itself.

    Raises:
        ConfigError: one is.
    """
    any_job = Job(WORKLOADS["quickstart"], LINKS["native"], trainers=1, lookahead=1, spread=False)
    require_free(overrides, own_settings(any_job, Path(), steady_steps(1, 1), Path()))


def run_job(job: Job, shards: Path, measured_steps: int, overrides: list[str], folder: Path) -> JobResult:
    """Train from the start, for as many steps as the measurement needs.

    Args:
        job: what to run.
        shards: its samples.
        measured_steps: steps that count.
        overrides: further settings, `section.field=value`; none of `own_settings`.
        folder: where outputs go for a while; all hosts must see it.

    Raises:
        RanksFailedError: it ended with an error.
    """
    steps = steady_steps(job.lookahead, measured_steps)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch, "run")
        settings = [*own_settings(job, shards, steps, output), *overrides]
        command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "train", job.workload.config_file, *settings]
        with OtherLoad() as others:
            run_ranks(job.ranks_of_hosts, job.link, command, share=folder)
        events = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    return JobResult(StepFigures.of_run(events, steps), summary, others.share)
