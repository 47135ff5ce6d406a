"""Who takes part in `bagpipe bench peers`: how each is started, and what it says of its run."""

import json
import math
import os
import socket
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.bench.conditions import REPOSITORY
from bagpipe_hpc.bench.peer_workloads import Link, Workload
from bagpipe_hpc.bench.watched_command import CommandError, WatchedRun, run_watched
from bagpipe_hpc.config_file import load_config
from bagpipe_hpc.roles.output_folder import METRICS_NAME, SUMMARY_NAME
from bagpipe_hpc.schedule import build_schedule, training_batch_sizes
from bagpipe_hpc.storage.shard_manifest import load_manifest

SCRIPTS = REPOSITORY / "scripts"
PEERS_PYTHON = REPOSITORY / "build" / "peers-venv" / "bin" / "python"
MALLOC_CURE = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "68719476736",
    "MALLOC_TOP_PAD_": "67108864",
}
"""glibc keeps a batch's large buffers instead of faulting them in again at the next one (see rank_environment.sh)."""
_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Contender:
    """A system and how its two cores are used.

    Attributes:
        name: for the command line and the figures.
        title: for the reader.
        program: file in benchmarks/peers, or empty for `bagpipe train`.
        trainers: processes that compute.
        threads: of each of them.
        cured: a peer with the allocator settings and the linear layers that bagpipe has.
        settings: overrides of its own.
        hosts: ranks on each of two hosts, where there is a link between them; empty for one that cannot use two.
    """

    name: str
    title: str
    program: str = ""
    trainers: int = 1
    threads: int = 2
    cured: bool = False
    settings: tuple[str, ...] = ()
    hosts: str = ""

    @property
    def is_peer(self) -> bool:
        """Whether it runs in the peers' environment."""
        return bool(self.program)


def _with_cure(contender: Contender) -> list[Contender]:
    cured = replace(contender, name=f"{contender.name}-cured", title=f"{contender.title}, both cures", cured=True)
    return [contender, cured]


def _without_lookahead(contender: Contender) -> Contender:
    settings = ("lookahead.batches=1", "lookahead.group=0")
    return replace(contender, name=f"{contender.name}-L1", title=f"{contender.title}, L = 1", settings=settings)


_BAGPIPE = (
    Contender("bagpipe-1x2", "bagpipe, 1 x 2", trainers=1, threads=2, hosts="2,1"),
    Contender("bagpipe-2x1", "bagpipe, 2 x 1", trainers=2, threads=1, hosts="2,2"),
)
CONTENDERS = (
    *_with_cure(Contender("pytorch", "plain PyTorch, 1 x 2", "plain_pytorch.py")),
    *_with_cure(Contender("torchrec-1x2", "TorchRec, 1 x 2", "torchrec_trainer.py")),
    *_with_cure(Contender("torchrec-2x1", "TorchRec sharded, 2 x 1", "torchrec_trainer.py", 2, 1, hosts="1,1")),
    *_BAGPIPE,
    *map(_without_lookahead, _BAGPIPE),
)
"""`2 x 1` is two trainers with a thread each. Bagpipe's oracle and server use the same two cores. Where there is a link
they are on the first host and all trainers on the second, while each rank of TorchRec has a host of its own."""


@dataclass(frozen=True)
class PeerResult:
    """What a run of a contender gave.

    Attributes:
        samples_per_s: over the steps that count; NaN where none were timed.
        auc: on the test rows; NaN without an evaluation.
        log_loss: on the test rows; NaN without an evaluation.
        watched: memory, and how much others disturbed.
    """

    samples_per_s: float
    auc: float
    log_loss: float
    watched: WatchedRun


def train(contender: Contender, workload: Workload, overrides: list[str]) -> PeerResult:
    """Let a contender train a workload with further overrides, and wait for its end.

    Raises:
        CommandError: it failed, or printed no result.
    """
    own = [f"train.threads={contender.threads}", *contender.settings, *overrides]
    if contender.is_peer:
        return _train_peer(contender, workload, own)
    return _train_bagpipe(contender, workload, own)


def timed_settings(contender: Contender, workload: Workload) -> list[str]:
    """Overrides for a run that measures speed.

    Bagpipe works ahead: in its last steps it has nothing left to fetch, so they come after those that count.
    """
    if contender.is_peer:
        return workload.settings()
    lookahead = load_config(workload.config, list(contender.settings)).lookahead.batches
    every = math.gcd(workload.warm_up_steps, workload.timed_steps)
    return [*workload.settings(lookahead), f"train.log_every_steps={every}"]


def _train_peer(contender: Contender, workload: Workload, overrides: list[str]) -> PeerResult:
    program = REPOSITORY / "benchmarks" / "peers" / contender.program
    command = [str(PEERS_PYTHON), "-W", "ignore", str(program), str(workload.config), *overrides]
    command += ["--warm-up-steps", str(workload.warm_up_steps), *(["--onednn"] if contender.cured else [])]
    environment = _environment() | {"PYTHONPATH": str(REPOSITORY)} | (MALLOC_CURE if contender.cured else {})
    if contender.trainers > 1:
        command = ["mpirun", "-n", str(contender.trainers), *command]
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    if workload.link:
        environment |= {"MASTER_ADDR": "host1", "GLOO_SOCKET_IFNAME": "eth0"}
    return peer_result(run_watched([*_on_hosts(contender, workload), *command], environment, _TIMEOUT_S))


def peer_result(watched: WatchedRun) -> PeerResult:
    """The result from the last line that is a JSON object."""
    lines = [line for line in watched.output.splitlines() if line.startswith("{")]
    if not lines:
        raise CommandError(f"a peer ended without its line of results; it printed:\n{watched.output}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return PeerResult(
        figures["samples_per_s"], figures.get("auc", math.nan), figures.get("log_loss", math.nan), watched
    )


def _train_bagpipe(contender: Contender, workload: Workload, overrides: list[str]) -> PeerResult:
    servers = load_config(workload.config).roles.servers
    with tempfile.TemporaryDirectory(dir=workload.shards.parent) as folder:  # a folder that emulated hosts share
        output = Path(folder, "run")
        launcher = [str(SCRIPTS / "run_ranks.sh"), str(1 + servers + contender.trainers)]
        program = [sys.executable, "-m", "bagpipe_hpc", "train", str(workload.config), *overrides]
        command = [*_on_hosts(contender, workload), *launcher, *program, f"train.output={output}"]
        watched = run_watched(command, _environment(), _TIMEOUT_S)
        metrics = [json.loads(line) for line in (output / METRICS_NAME).read_text(encoding="utf-8").splitlines()]
        evaluations = json.loads((output / SUMMARY_NAME).read_text(encoding="utf-8"))["evaluations"]
    config = load_config(workload.config, overrides)
    manifest = load_manifest(workload.shards)
    sizes = training_batch_sizes(build_schedule(config.train, manifest.rows("train"), manifest.rows("test")))
    speed = samples_per_s(metrics, sizes, workload.warm_up_steps, workload.warm_up_steps + workload.timed_steps)
    last = evaluations[-1] if evaluations else {"auc": math.nan, "log_loss": math.nan}
    return PeerResult(speed, last["auc"], last["log_loss"], watched)


def samples_per_s(metrics: list[dict[str, Any]], batch_sizes: list[int], first: int, last: int) -> float:
    """Speed between two steps by the times at which a run reported them; NaN where it did not report them both.

    Args:
        metrics: records of `metrics.jsonl`.
        batch_sizes: samples of each step of the run.
        first: steps done when the time starts.
        last: steps done when it ends.
    """
    times: dict[int, float] = {record["step"]: record["time_s"] for record in metrics if record["event"] == "progress"}
    if first not in times or last not in times:
        return math.nan
    return sum(batch_sizes[first:last]) / (times[last] - times[first])


def emulated_hosts(link: Link, ranks: str) -> list[str]:
    """What comes before a command whose ranks run on two emulated hosts."""
    options = ["--ranks", ranks, "--bandwidth", link.bandwidth, "--latency", link.latency, "--share", sys.prefix]
    return [str(SCRIPTS / "emulated_hosts.sh"), *options]


def _on_hosts(contender: Contender, workload: Workload) -> list[str]:
    return emulated_hosts(workload.link, contender.hosts) if workload.link else []


def _environment() -> dict[str, str]:
    """This process's environment, with the mpirun of its own Python first."""
    return dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
