"""Finds the hot rows of training rows, and the samples that look up nothing else.

The rows of all tables with the most look-ups in a uniform sample of the training samples are hot, as in the released
code of FAE (Adnan et al., PVLDB 15(1)); the paper searches for a threshold of look-ups. A second pass finds for each
training sample whether all its rows are hot.

Legend: `R` rows of all tables, `n` training samples.
"""

import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policy import TrainingRows
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.storage.shards.counting import require_countable
from bagpipe_hpc.storage.shards.hot_rows import HotRows, load_hot_rows
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest
from bagpipe_hpc.storage.shards.reader import ClickShards

log = logging.getLogger(__name__)

_READ_SAMPLES = 1 << 16
_ROW_BYTES = 18
"""Memory for each row: the counts, a sorted copy of them, and two flags."""
_USUAL_BUDGET_BYTES = 256 << 20
"""The value in FAE's scripts."""

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class ProfileSettings:
    """How hot rows are chosen.

    Attributes:
        budget_rows: most hot rows.
        sample_percent: share of the training samples whose look-ups are counted, above 0 up to 100.
        seed: seed for drawing these samples.
    """

    budget_rows: int
    sample_percent: float = 5.0
    seed: int = 1


def budget_of(settings: FaeSettings, training: TrainingRows) -> int:
    """Most hot rows.

    Where `policy.hot_rows` is 0: as many as `cache.rows` has room for beside the rows of a cold batch, which are no
    more than its look-ups, but at least half of `cache.rows`. Without `cache.rows`, as many as fit into 256 MiB.
    """
    if settings.hot_rows:
        return settings.hot_rows
    if rows := training.cache_rows:
        return max(rows // 2, rows - math.ceil(training.batch_size * training.sample_look_ups))
    return max(1, _USUAL_BUDGET_BYTES // training.row_bytes)


def profile_path(settings: FaeSettings, training: TrainingRows) -> Path:
    """Path of the profile: if the settings name no file, it lies beside the shards, named by how it is made."""
    made = f"hot_rows-{budget_of(settings, training)}-{settings.sample_percent:g}-{training.seed}.h5"
    return Path(training.directory) / (settings.profile or made)


def read_profile(settings: FaeSettings, training: TrainingRows) -> HotRows:
    """The profile of training rows.

    Raises:
        DataError: there is none, or it is damaged.
        SettingError: it describes other rows, or was made with other settings.
    """
    path = profile_path(settings, training)
    hot, problems = load_hot_rows(path), []
    if hot.training_data != training.digest:
        problems.append("is of other training rows")
    budget = budget_of(settings, training)
    for what, then, now in (
        ("most hot rows", hot.budget_rows, budget),
        ("policy.sample_percent", hot.sample_percent, settings.sample_percent),
        ("train.seed", hot.seed, training.seed),
    ):
        if then != now:
            problems.append(f"was made with {what} = {then:g}, and now it is {now:g}")
    if problems:
        cure = f"{path} {'; '.join(problems)}; remove it, or name another file, and it is made anew"
        raise SettingError("policy.profile", settings.profile, cure)
    return hot


def make_profile(settings: FaeSettings, training: TrainingRows) -> HotRows:
    """The profile of training rows; makes and writes it first if it does not exist.

    Raises:
        ConfigError: it cannot be written.
        CapacityError: this host lacks the memory to count look-ups of each row.
        DataError: the data are missing or damaged, or the file is not a profile.
        SettingError: as for `read_profile`.
    """
    path = profile_path(settings, training)
    if path.exists():
        return read_profile(settings, training)
    if "\0" in str(path) or not os.access(path.parent, os.W_OK | os.X_OK):
        cure = f"{path} cannot be written; name a file elsewhere, by its full path"
        raise SettingError("policy.profile", settings.profile, cure)
    log.info("policy.name: looks for hot rows among all training rows, for %s", path)
    chosen = ProfileSettings(budget_of(settings, training), settings.sample_percent, training.seed)
    found = find_hot_rows(Path(training.directory), load_manifest(Path(training.directory)), chosen)
    try:
        found.save(path)
    except OSError as error:
        raise SettingError("policy.profile", settings.profile, f"{path} cannot be written: {error}") from error
    return found


def find_hot_rows(directory: Path, manifest: ShardManifest, settings: ProfileSettings) -> HotRows:
    """Count look-ups, choose the hot rows, and find the samples that look up nothing else.

    Memory is 9 bytes a row of the tables, twice that while rows are chosen, and a bit a sample.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        settings: how rows are chosen.

    Raises:
        ConfigError: there are no training samples.
        CapacityError: this host does not have this much memory.
        DataError: a shard is missing or damaged.
    """
    if not (count := manifest.rows("train")):
        raise ConfigError(f"{directory}: has no training rows to profile")
    require_countable(directory, manifest, _ROW_BYTES)
    offsets = table_offsets(manifest.table_rows)
    first_rows = offsets[list(manifest.feature_tables)]
    with ClickShards(directory, manifest, "train") as shards:
        rows = hottest(_counts(shards, first_rows, int(offsets[-1]), settings), settings.budget_rows)
        is_hot = np.zeros(offsets[-1], dtype=np.bool_)
        is_hot[rows] = True
        hot = [np.packbits(all_hot(bags, is_hot)) for _, bags in _read(shards, first_rows)]
    return HotRows(
        training_data=manifest.digest("train"),
        total_rows=int(offsets[-1]),
        budget_rows=settings.budget_rows,
        sample_percent=settings.sample_percent,
        seed=settings.seed,
        sample_count=count,
        rows=rows,
        samples=np.concatenate(hot),
    )


def hottest(counts: Int64s, budget_rows: int) -> Int64s:
    """The rows with the largest counts, ascending, int64; of rows with equal counts the lower ones.

    Args:
        counts: the count of each row, int64 `[R]`.
        budget_rows: most rows.
    """
    if budget_rows >= counts.size:
        return np.arange(counts.size, dtype=np.int64)
    if budget_rows < 1:
        return np.empty(0, dtype=np.int64)
    least = np.partition(counts, counts.size - budget_rows)[counts.size - budget_rows]
    above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
    return np.sort(np.concatenate((above, equal[: budget_rows - above.size])))


def all_hot(bags: Bags, is_hot: Bools) -> Bools:
    """Whether every row that a sample looks up is hot, bool `[samples]`.

    Args:
        bags: global rows of samples.
        is_hot: whether each row is hot, bool `[R]`.
    """
    samples = np.ones(bags.samples, dtype=np.bool_)
    samples[bags.sample_of_value[~is_hot[bags.values]]] = False
    return samples


def _counts(shards: ClickShards, first_rows: Int64s, total_rows: int, settings: ProfileSettings) -> Int64s:
    """Look-ups of each row by the samples that are drawn, int64 `[R]`."""
    counts = np.zeros(total_rows, dtype=np.int64)
    for first, bags in _read(shards, first_rows):
        drawn = np.random.default_rng([settings.seed, first]).random(bags.samples) * 100 < settings.sample_percent
        np.add.at(counts, bags.take(np.flatnonzero(drawn)).values, 1)
    return counts


def _read(shards: ClickShards, first_rows: Int64s) -> Iterator[tuple[int, Bags]]:
    """All samples in pieces whose length is a multiple of 8: the number of a piece's first sample, and global rows."""
    for first in range(0, shards.rows, _READ_SAMPLES):
        yield first, shards.read_look_ups(first, min(first + _READ_SAMPLES, shards.rows)).plus(first_rows)
