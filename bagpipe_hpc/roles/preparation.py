"""What is checked and decided before any rank starts to train: data, output folder, schedule, window."""

import logging
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config import Config
from bagpipe_hpc.config_file import to_toml
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.planning.capacity import CacheNeed, fit_window
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.roles.job import Job
from bagpipe_hpc.schedule import build_schedule
from bagpipe_hpc.storage.shard_check import verify_shards
from bagpipe_hpc.storage.shard_manifest import load_manifest

log = logging.getLogger(__name__)

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.jsonl"
SUMMARY_NAME = "summary.json"
LOGS_NAME = "logs"
LARGEST_VERSION = 1 << 24
"""A version is a step number in a float32 column."""
_PROGRESS_EVERY_S = 10.0
_RUN_CONTENT = (CONFIG_NAME, METRICS_NAME, SUMMARY_NAME, LOGS_NAME, "checkpoints")


def prepare_job(config: Config) -> Job:
    """Check the data and lay out the run.

    Raises:
        ConfigError: the configuration and the data do not fit each other.
        DataError: the shard directory is incomplete or damaged.
    """
    if not config.data.path:
        raise ConfigError("data.path is empty: name a folder written by `bagpipe prepare`, as in data.path=shards")
    directory = Path(config.data.path)
    manifest = load_manifest(directory)
    log.info("checking %d shards (%s)", len(manifest.train) + len(manifest.test), config.data.verify)
    verify_shards(directory, manifest, config.data.verify)
    schedule = build_schedule(config.train, manifest.rows("train"), manifest.rows("test"))
    job = Job(config, manifest, tuple(schedule))
    if config.debug.verify_rows and job.total_steps > LARGEST_VERSION:
        raise ConfigError(
            f"debug.verify_rows = true: versions are exact up to step {LARGEST_VERSION}, and the run has "
            f"{job.total_steps}; set train.max_steps or leave it out"
        )
    return job


def check_output(config: Config) -> None:
    """See that no earlier run is in the way.

    Raises:
        ConfigError: the output folder holds one, and may not be overwritten.
    """
    earlier = _earlier_run(config)
    if earlier and not config.train.overwrite:
        raise ConfigError(
            f"train.output = {config.train.output!r} holds an earlier run ({earlier[0].name}): "
            "choose another folder, or set train.overwrite=true to replace it"
        )


def start_output(config: Config) -> None:
    """Make the output folder, without an earlier run, and put the resolved configuration there.

    Comes after all that could refuse the run, so that a refused one destroys nothing.

    Raises:
        ConfigError: the folder cannot be written.
    """
    output = Path(config.train.output)
    try:
        for path in _earlier_run(config):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        (output / LOGS_NAME).mkdir(parents=True, exist_ok=True)
        (output / CONFIG_NAME).write_text(to_toml(config), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"train.output = {config.train.output!r} cannot be written: {error}") from error


def _earlier_run(config: Config) -> list[Path]:
    output = Path(config.train.output)
    return [output / name for name in _RUN_CONTENT if (output / name).exists()]


def choose_window(job: Job, trainers: int) -> CacheNeed:
    """The window that the run uses, and the cache that it needs; plans the whole run once without slots' limits.

    Raises:
        CapacityError: the configured cache does not even hold single batches.
    """
    lookahead = job.config.lookahead
    wanted = Window(lookahead.batches, lookahead.group_batches)
    return fit_window(job.total_rows, trainers, wanted, lambda: _all_batches(job), job.config.cache.rows)


def _all_batches(job: Job) -> Iterator[Iterable[NDArray[np.int64]]]:
    """One pass over the batches of every segment, with a line now and then of how far it is."""
    total = sum(segment.batches for segment in job.schedule)
    log.info("reading %d batches ahead of the run, to measure the cache", total)
    spoke_s = time.monotonic()
    done = 0

    def told(batches: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
        nonlocal spoke_s, done
        for batch in batches:
            yield batch
            done += 1
            if time.monotonic() - spoke_s > _PROGRESS_EVERY_S:
                spoke_s = time.monotonic()
                log.info("%d of %d batches read", done, total)

    for segment in job.schedule:
        yield told(job.batches(segment))
