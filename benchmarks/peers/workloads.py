"""What `python -m benchmarks peers` lets everyone train: data, settings, how many steps count."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, load_manifest
from bagpipe_hpc.tools.conditions import REPOSITORY
from benchmarks.jobs.links import LINKS, Link
from benchmarks.jobs.step_range import StepRange
from benchmarks.jobs.watched_command import CommandError
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.kaggle.shards import write_kaggle_shards

_FOLDER = REPOSITORY / "build" / "bench"
_SETTINGS = Path(__file__).parent
_WARM_UP_STEPS = 10
_TIMED_STEPS = 40
_SHOWN_LINES = 30


@dataclass(frozen=True)
class PeerWorkload:
    """A training run that every contender does.

    Attributes:
        title: what it is, for the reader.
        config_file: settings that are the same for all.
        shards: prepared samples.
        warm_up_steps: steps that do not count.
        timed_steps: steps after these, which count.
        needed_bytes: memory that the largest contender takes.
        link: between the two hosts that it runs on; `native` for one host.
        device: `train.device`.
        logged_steps: in turns, steps between two lines of bagpipe's progress, which take some tenths of a millisecond.
    """

    title: str
    config_file: Path
    shards: Path
    warm_up_steps: int
    timed_steps: int
    needed_bytes: float
    link: Link = LINKS["native"]
    device: str = "cpu"
    logged_steps: int = 5

    def config(self, overrides: list[str]) -> Config:
        """Its settings with some replaced, each `section.field=value`."""
        return load_config(self.config_file, overrides)

    @property
    def steps_per_epoch(self) -> int:
        """Batches of the training samples."""
        return -(-load_manifest(self.shards).rows("train") // self.config([]).train.batch_size)


def real_workload(criteo: Path | None, rows: int, timed_epochs: int) -> PeerWorkload:
    """Criteo rows and small tables: clicks in Criteo's format from a file, or generated ones.

    Args:
        criteo: the file; none generates.
        rows: rows to generate.
        timed_epochs: passes over the samples that count, after one that does not.
    """
    name = f"generated-{rows}"
    if criteo:
        state = criteo.stat()
        name = f"{criteo.name}-{state.st_size}-{state.st_mtime_ns}"
    shards = _FOLDER / name
    if not (shards / MANIFEST_NAME).exists():
        _bagpipe("prepare", "--input", str(criteo or _generate(rows)), "--output", str(shards))
    title = f"real: {'Criteo rows' if criteo else f'{rows:,} generated rows'}, batch 2,048, D = 16"
    workload = PeerWorkload(title, _SETTINGS / "real.toml", shards, 0, 0, 2e9)
    epoch = workload.steps_per_epoch
    return replace(workload, warm_up_steps=epoch, timed_steps=timed_epochs * epoch)


def large_tables_workload(timed_steps: int) -> PeerWorkload:
    """Criteo Kaggle's table sizes with generated ids, in batches enough for the default look-ahead."""
    config_file = _SETTINGS / "large_tables.toml"
    config = load_config(config_file)
    batches = StepRange.steady(config.lookahead, timed_steps, at_least=_WARM_UP_STEPS).total
    shards = _FOLDER / f"kaggle-sizes-{batches}"
    if not (shards / MANIFEST_NAME).exists():
        write_kaggle_shards(shards, batches * config.train.batch_size)
    title = "large tables: 33.8 million rows as in Criteo Kaggle, ids of Zipf 1.05, batch 16,384, D = 48"
    return PeerWorkload(title, config_file, shards, _WARM_UP_STEPS, timed_steps, 10e9, logged_steps=1)


def link_workload(link: Link) -> PeerWorkload:
    """The embedding-bound model of `python -m benchmarks step`, on two hosts."""
    workload = WORKLOADS["embedding_bound"]
    config = workload.config([])
    batches = StepRange.steady(config.lookahead, _TIMED_STEPS, at_least=_WARM_UP_STEPS).total
    shards = workload.shards(_FOLDER, batches, config.train.batch_size)
    title = f"link {link.name}: embedding-bound, batch 4,096, D = 64, on two hosts"
    return PeerWorkload(title, workload.config_file, shards, _WARM_UP_STEPS, _TIMED_STEPS, 5e9, link)


def _generate(rows: int) -> Path:
    clicks = _FOLDER / f"generated-{rows}.tsv"
    if not clicks.exists():
        _bagpipe("generate", "--rows", str(rows), "--output", str(clicks))
    return clicks


def _bagpipe(*arguments: str) -> None:
    """Run a command of bagpipe; what it says of its progress is not shown.

    Raises:
        CommandError: it failed; the error shows its last lines.
    """
    command = [sys.executable, "-m", "bagpipe_hpc", *arguments]
    ended = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, errors="replace")
    if ended.returncode:
        last = "\n".join(ended.stderr.splitlines()[-_SHOWN_LINES:])
        raise CommandError(f"{' '.join(command)}\nended with status {ended.returncode}:\n{last}")
