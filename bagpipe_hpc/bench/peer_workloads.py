"""What `bagpipe bench peers` lets everyone train: data, settings, which steps count."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.bench.conditions import REPOSITORY
from bagpipe_hpc.bench.kaggle_shards import write_kaggle_shards
from bagpipe_hpc.config_file import load_config
from bagpipe_hpc.storage.shard_manifest import MANIFEST_NAME, load_manifest

_DATA = REPOSITORY / "build" / "bench" / "peers"
_SETTINGS = REPOSITORY / "benchmarks" / "peers"
_LARGE_BATCH = 16384
_LARGE_BATCHES = 100
_KAGGLE_TABLES = "33.8 million rows as in Criteo Kaggle, generated ids (Zipf 1.05)"


@dataclass(frozen=True)
class Link:
    """What joins two emulated hosts (scripts/emulated_hosts.sh).

    Attributes:
        bandwidth: each way, such as `1gbit`.
        latency: one way, such as `500us`.
    """

    bandwidth: str
    latency: str


@dataclass(frozen=True)
class Workload:
    """A training run that every contender does.

    Attributes:
        title: what it is, for the reader.
        config: settings that are the same for all.
        shards: prepared samples.
        warm_up_steps: steps that do not count.
        timed_steps: steps after these, which count.
        needed_bytes: memory that the largest contender takes.
        link: between the two hosts that it runs on; none for a single host.
    """

    title: str
    config: Path
    shards: Path
    warm_up_steps: int
    timed_steps: int
    needed_bytes: float
    link: Link | None = None

    def settings(self, further_steps: int = 0) -> list[str]:
        """Overrides for a timed run that goes on for `further_steps` after the steps that count."""
        steps = self.warm_up_steps + self.timed_steps + further_steps
        epochs = -(-steps // self.steps_per_epoch)
        return [f"data.path={self.shards}", "data.verify=quick", f"train.max_steps={steps}", f"train.epochs={epochs}"]

    @property
    def steps_per_epoch(self) -> int:
        """Batches of the training samples."""
        return -(-load_manifest(self.shards).rows("train") // load_config(self.config).train.batch_size)


def real_workload(criteo: Path | None, rows: int, timed_epochs: int) -> Workload:
    """Criteo rows and small tables: clicks in Criteo's format from a file, or generated ones.

    Args:
        criteo: the file; none generates.
        rows: rows to generate.
        timed_epochs: passes over the samples that count, after one that does not.
    """
    if criteo is None:
        shards, title = _DATA / f"generated-{rows}", f"{rows:,} generated rows"
    else:
        state = criteo.stat()
        shards, title = _DATA / f"{criteo.name}-{state.st_size}-{state.st_mtime_ns}", f"Criteo rows of {criteo.name}"
    if not (shards / MANIFEST_NAME).exists():
        clicks = criteo or _generate(rows)
        _bagpipe("prepare", "--input", str(clicks), "--output", str(shards))
    workload = Workload(f"real: {title}, batch 2,048, D = 16", _SETTINGS / "real.toml", shards, 1, 1, 2e9)
    epoch = workload.steps_per_epoch
    return Workload(workload.title, workload.config, shards, epoch, timed_epochs * epoch, workload.needed_bytes)


def large_tables_workload() -> Workload:
    """Criteo Kaggle's table sizes with generated ids."""
    title = f"large tables: {_KAGGLE_TABLES}, batch 16,384, D = 48"
    return Workload(title, _SETTINGS / "large_tables.toml", _kaggle_shards(), 20, 40, 10e9)


def link_workload(link: Link) -> Workload:
    """Embeddings above all, over a link between two hosts: bagpipe's rows all lie on the other side of it."""
    title = (
        f"link of {link.bandwidth}, {link.latency} one way: {_KAGGLE_TABLES}, batch 16,384, D = 64, 13-64-64 and 64-1"
    )
    return Workload(title, _SETTINGS / "embedding_bound.toml", _kaggle_shards(), 20, 40, 12e9, link)


def _kaggle_shards() -> Path:
    shards = _DATA / f"kaggle-sizes-{_LARGE_BATCHES}"
    if not (shards / MANIFEST_NAME).exists():
        write_kaggle_shards(shards, _LARGE_BATCHES * _LARGE_BATCH)
    return shards


def _generate(rows: int) -> Path:
    clicks = _DATA / f"generated-{rows}.tsv"
    if not clicks.exists():
        _bagpipe("generate", "--rows", str(rows), "--output", str(clicks))
    return clicks


def _bagpipe(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "bagpipe_hpc", *arguments], check=True, stderr=subprocess.DEVNULL)
