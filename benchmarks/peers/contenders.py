"""Who takes part in `python -m benchmarks peers`: how each is started, and what it says of its run."""

import contextlib
import json
import math
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.plan.schedule import build_schedule, training_batch_sizes
from bagpipe_hpc.run.output.folder import LOGS_NAME
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME
from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_command import CommandError, WatchedRun, run_watched
from benchmarks.peers.workloads import PeerWorkload

_EMULATED_HOSTS = REPOSITORY / "scripts" / "emulated_hosts.sh"
_RUN_RANKS = REPOSITORY / "scripts" / "run_ranks.sh"
PEERS_PYTHON = REPOSITORY / "build" / "peers-venv" / "bin" / "python"
ALLOCATOR, ONEDNN = "allocator", "onednn"
MALLOC_CURE = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "68719476736",
    "MALLOC_TOP_PAD_": "67108864",
}
"""glibc keeps a batch's large buffers instead of faulting them in again at the next one (`cluster/allocator.py`)."""
_TIMEOUT_S = 1800.0
_PROGRESS_NAME = "progress.txt"
_END_BYTES = 1 << 16
"""Of a file of progress that are read."""


@dataclass(frozen=True)
class Contender:
    """A system and how its two cores are used.

    Attributes:
        name: for the command line and the figures.
        title: for the reader.
        program: file in `programs`, or empty for `bagpipe train`.
        trainers: processes that compute.
        threads: of each of them.
        cures: of a peer, those of `ALLOCATOR` and `ONEDNN` that it gets; bagpipe has both.
        settings: overrides of its own.
    """

    name: str
    title: str
    program: str = ""
    trainers: int = 1
    threads: int = 2
    cures: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()

    @property
    def is_peer(self) -> bool:
        """Whether it runs in the peers' environment."""
        return bool(self.program)

    def obstacle(self, *, over_link: bool, on_gpu: bool) -> str:
        """Why it cannot train on two hosts, or on a GPU; empty where it can."""
        if over_link and not self.ranks_of_hosts(servers=1):
            return "one process has one host"
        if on_gpu and self.trainers > 1:
            return "several trainers do not share a GPU"
        if on_gpu and (self.cures or "kernels.linear=onednn" in self.settings):
            return "oneDNN and the allocator are for CPUs"
        if on_gpu and self.program not in ("", "plain_pytorch.py"):
            return "the peers' environment has FBGEMM for CPUs"
        return ""

    def ranks_of_hosts(self, servers: int) -> tuple[int, ...]:
        """Ranks on each of two hosts; empty for one that cannot use two.

        A peer's ranks have a host each. Of bagpipe, oracle and servers are on the first, so that every row is behind
        the link for every trainer.
        """
        if self.is_peer:
            return (1,) * self.trainers if self.trainers > 1 else ()
        return (1 + servers, self.trainers)


def _with_cures(contender: Contender) -> list[Contender]:
    """As it is shipped, with bagpipe's allocator settings alone, and with its linear layers, too."""
    name, title = contender.name, contender.title
    return [
        contender,
        replace(contender, name=f"{name}-allocator", title=f"{title}, allocator", cures=frozenset({ALLOCATOR})),
        replace(contender, name=f"{name}-cured", title=f"{title}, both cures", cures=frozenset({ALLOCATOR, ONEDNN})),
    ]


def _without_lookahead(contender: Contender) -> Contender:
    settings = ("lookahead.batches=1", "lookahead.group=0")
    return replace(contender, name=f"{contender.name}-L1", title=f"{contender.title}, L = 1", settings=settings)


def _forced_layers(contender: Contender) -> list[Contender]:
    """With each of the linear layers among which `kernels.linear=auto` chooses."""
    return [
        replace(
            contender,
            name=f"{contender.name}-{linear}",
            title=f"{contender.title}, {linear}",
            settings=(f"kernels.linear={linear}",),
        )
        for linear in ("onednn", "torch")
    ]


_BAGPIPE = (
    Contender("bagpipe-1x2", "bagpipe, 1 x 2", trainers=1, threads=2),
    Contender("bagpipe-2x1", "bagpipe, 2 x 1", trainers=2, threads=1),
)
CONTENDERS = (
    *_with_cures(Contender("pytorch", "plain PyTorch, 1 x 2", "plain_pytorch.py")),
    *_with_cures(Contender("torchrec-1x2", "TorchRec, 1 x 2", "torchrec_trainer.py")),
    *_with_cures(Contender("torchrec-2x1", "TorchRec sharded, 2 x 1", "torchrec_trainer.py", trainers=2, threads=1)),
    *_BAGPIPE,
    *(forced for contender in _BAGPIPE for forced in _forced_layers(contender)),
    *map(_without_lookahead, _BAGPIPE),
)
"""`2 x 1` is two trainers with a thread each. Bagpipe's oracle and servers use the same two cores."""


class TimedSteps(StepRange):
    """Which steps of a contender's run count."""

    @classmethod
    def of(cls, contender: Contender, workload: PeerWorkload) -> "TimedSteps":
        """Those of a contender: of a peer all behind the warm-up, of bagpipe those of its steady state."""
        if contender.is_peer:
            first = workload.warm_up_steps
            return cls(first, first + workload.timed_steps, first + workload.timed_steps)
        lookahead = workload.config(list(contender.settings)).lookahead
        return cls.steady(lookahead, workload.timed_steps, at_least=workload.warm_up_steps)

    def settings(self, workload: PeerWorkload) -> list[str]:
        """Overrides for a run of these steps that reports when they start and end."""
        epochs = -(-self.total // workload.steps_per_epoch)
        every = math.gcd(self.first, self.last)
        return [f"train.max_steps={self.total}", f"train.epochs={epochs}", f"train.log_every_steps={every}"]


@dataclass(frozen=True)
class PeerResult:
    """What a run of a contender gave.

    Attributes:
        samples_per_s: over the steps that count; NaN where none were timed.
        watched: memory, and how much others disturbed.
        auc: on the test rows; NaN without an evaluation.
        log_loss: on the test rows; NaN without an evaluation.
        linear: of bagpipe, what its linear layers were and why.
    """

    samples_per_s: float
    watched: WatchedRun
    auc: float = math.nan
    log_loss: float = math.nan
    linear: str = ""


def measure_speed(contender: Contender, workload: PeerWorkload) -> PeerResult:
    """Let a contender train as long as a measurement needs.

    Raises:
        CommandError: it failed, or printed no result.
    """
    steps = TimedSteps.of(contender, workload)
    settings = ["train.evaluate=false", "train.checkpoint_at_end=false", *steps.settings(workload)]
    return _train(contender, workload, settings, steps)


def measure_quality(contender: Contender, workload: PeerWorkload, overrides: list[str]) -> PeerResult:
    """Let a contender train with further overrides to the end of the run, and evaluate.

    Raises:
        CommandError: it failed, or printed no result.
    """
    settings = ["train.evaluate=true", "train.checkpoint_at_end=false", *overrides]
    return _train(contender, workload, settings, TimedSteps(0, 0, 0))


def _train(contender: Contender, workload: PeerWorkload, overrides: list[str], steps: TimedSteps) -> PeerResult:
    own = [*_settings(contender, workload), *overrides]
    return (_train_peer if contender.is_peer else _train_bagpipe)(contender, workload, own, steps)


def command_of(
    contender: Contender, workload: PeerWorkload, overrides: list[str], output: Path
) -> tuple[list[str], dict[str, str]]:
    """A command that lets a contender train and keeps `progress_of` up to date, and its environment.

    Args:
        contender: who trains.
        workload: what.
        overrides: further settings.
        output: an empty folder, for what it writes.
    """
    own = [*_settings(contender, workload), *overrides]
    if contender.is_peer:
        command, environment = _peer_command(contender, workload, own)
        return [*command, "--progress", str(output / _PROGRESS_NAME)], environment
    own.append(f"train.log_every_steps={workload.logged_steps}")
    return _bagpipe_command(contender, workload, own, output), _environment()


def progress_of(contender: Contender, output: Path) -> tuple[int, float]:
    """Steps that a contender has done, and seconds so far, without a peer's reading; zeros before the first step."""
    if contender.is_peer:
        steps, seconds = next(map(str.split, _last_lines(output / _PROGRESS_NAME)), ("0", "0"))
        return int(steps), float(seconds)
    for record in map(json.loads, _last_lines(output / METRICS_NAME)):
        if record["event"] == "progress":
            return record["step"], record["time_s"]
    return 0, 0.0


def _last_lines(path: Path) -> Iterator[str]:
    """The whole lines at the end of a file, the last one first; none where there is no such file yet."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
        is_whole = file.tell() == 0
        *lines, _ = file.read().split(b"\n")  # what follows the last line's end is not whole
        yield from (line.decode() for line in reversed(lines[0 if is_whole else 1 :]))


def _settings(contender: Contender, workload: PeerWorkload) -> list[str]:
    common = [f"data.path={workload.shards}", "data.verify=quick", f"train.threads={contender.threads}"]
    common.append(f"train.device={workload.device}")
    return [*common, *contender.settings]


def _peer_command(
    contender: Contender, workload: PeerWorkload, overrides: list[str]
) -> tuple[list[str], dict[str, str]]:
    program = Path(__file__).parent / "programs" / contender.program
    command = [str(PEERS_PYTHON), "-W", "ignore", str(program), str(workload.config_file), *overrides]
    command += ["--onednn"] if ONEDNN in contender.cures else []
    environment = _environment() | {"PYTHONPATH": str(REPOSITORY)}
    environment |= MALLOC_CURE if ALLOCATOR in contender.cures else {}
    if contender.trainers > 1:
        command = [str(_RUN_RANKS), str(contender.trainers), *command]
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    if workload.link.is_emulated:
        environment |= {"MASTER_ADDR": "host1", "GLOO_SOCKET_IFNAME": "eth0"}
    return [*_on_hosts(contender, workload), *command], environment


def _train_peer(contender: Contender, workload: PeerWorkload, overrides: list[str], steps: TimedSteps) -> PeerResult:
    command, environment = _peer_command(contender, workload, overrides)
    return peer_result(run_watched([*command, "--warm-up-steps", str(steps.first)], environment, _TIMEOUT_S))


def peer_result(watched: WatchedRun) -> PeerResult:
    """The result from the last line that is a JSON object."""
    lines = [line for line in watched.output.splitlines() if line.startswith("{")]
    if not lines:
        raise CommandError(f"a peer ended without its line of results; it printed:\n{watched.output}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return PeerResult(figures["samples_per_s"], watched, *_quality(figures))


def _train_bagpipe(contender: Contender, workload: PeerWorkload, overrides: list[str], steps: TimedSteps) -> PeerResult:
    config = workload.config(overrides)
    with tempfile.TemporaryDirectory(dir=workload.shards.parent) as folder:  # one that emulated hosts share
        output = Path(folder, "run")
        watched = run_watched(_bagpipe_command(contender, workload, overrides, output), _environment(), _TIMEOUT_S)
        metrics = [json.loads(line) for line in (output / METRICS_NAME).read_text(encoding="utf-8").splitlines()]
        linear = chosen_layers((output / LOGS_NAME / "oracle-0.log").read_text(encoding="utf-8"))
        evaluations = json.loads((output / SUMMARY_NAME).read_text(encoding="utf-8"))["evaluations"]
    manifest = load_manifest(workload.shards)
    sizes = training_batch_sizes(build_schedule(config.train, manifest.rows("train"), manifest.rows("test")))
    auc, log_loss = _quality(evaluations[-1] if evaluations else {})
    return PeerResult(samples_per_s(metrics, sizes, steps), watched, auc, log_loss, linear)


def _bagpipe_command(contender: Contender, workload: PeerWorkload, overrides: list[str], output: Path) -> list[str]:
    ranks = 1 + workload.config(overrides).roles.servers + contender.trainers
    launcher = [str(_RUN_RANKS), str(ranks)]
    program = [sys.executable, "-m", "bagpipe_hpc", "train", str(workload.config_file), *overrides]
    settings = [f"train.output={output}", "roles.placement=rank_order"]  # ranks are put on hosts for their roles
    return [*_on_hosts(contender, workload), *launcher, *program, *settings]


def chosen_layers(log: str) -> str:
    """What the oracle's log says of the linear layers; empty if nothing."""
    said = (line.partition("linear layers: ")[2] for line in log.splitlines())
    return next(filter(None, said), "")


def _quality(evaluation: Mapping[str, Any]) -> tuple[float, float]:
    """AUC and log loss; NaN where there are none."""
    return evaluation.get("auc", math.nan), evaluation.get("log_loss", math.nan)


def samples_per_s(metrics: list[dict[str, Any]], batch_sizes: list[int], steps: TimedSteps) -> float:
    """Speed over the steps that count, by the times at which a run reported them; NaN where it did not report both.

    Args:
        metrics: records of `metrics.jsonl`.
        batch_sizes: samples of each step of the run.
        steps: which count.
    """
    times: dict[int, float] = {record["step"]: record["time_s"] for record in metrics if record["event"] == "progress"}
    if steps.first not in times or steps.last not in times:
        return math.nan
    return sum(batch_sizes[steps.first : steps.last]) / (times[steps.last] - times[steps.first])


def _on_hosts(contender: Contender, workload: PeerWorkload) -> list[str]:
    """What comes before a command whose ranks run on two emulated hosts; nothing on one host."""
    if not workload.link.is_emulated:
        return []
    places = ",".join(map(str, contender.ranks_of_hosts(workload.config([]).roles.servers)))
    options = ["--ranks", places, *workload.link.options(), "--share", str(REPOSITORY), "--share", sys.prefix]
    return [str(_EMULATED_HOSTS), *options]


def _environment() -> dict[str, str]:
    """This process's environment, with the mpirun of its own Python first."""
    return dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
