"""Measures the look-ups of a shard directory: how uneven, how many without a value, and how soon rows come back.

It reads the rows once, in time order; memory is 24 bytes for each row of the tables.

Legend: `B` samples of a batch, `U` unique rows of a batch, `R` rows of all tables.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.shards.counting import require_countable
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.vocabulary import read_unseen_buckets
from bagpipe_hpc.storage.vocabularies.waiting_values import read_waiting

TOP_SHARES = (0.001, 0.01, 0.1)
"""Shares of the most frequent ids whose share of the look-ups is reported."""
WITHIN_BATCHES = (1, 10, 40, 200)
"""Distances in batches for which the share of rows that come back within them is reported."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_READ_SAMPLES = 1 << 16
_ROW_BYTES = 24
"""Memory for each row: its count and last batch, or later the counts, sorted counts and their sums."""
_CURVE_POINTS = 60

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class TableLookUps:
    """The look-ups of a table, or of all of them.

    Attributes:
        table: its name.
        ids: rows of the table.
        used: number of ids that are looked up at all.
        look_ups: number of look-ups.
        without_id: share of the look-ups whose value has no id of its own, missing values included.
        missing: share of the look-ups of missing values; None where the directory does not say which they are.
        top: share of the look-ups on the most frequent 0.1, 1 and 10 % of the ids (`TOP_SHARES`), one id at least.
        curve: pairs of a share of the most frequent ids and their share of the look-ups, ascending.
    """

    table: str
    ids: int
    used: int
    look_ups: int
    without_id: float
    missing: float | None
    top: tuple[float, ...]
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Reuse:
    """How far apart the batches are that look up the same row.

    A *use* is a row and a batch that looks it up, however often. Its distance is the number of batches since the last
    use of the row, 1 for the batch before.

    Attributes:
        batch_size: samples of a batch.
        batches: number of batches.
        uses: number of uses.
        first: share of the uses that are the first ones of their rows.
        within: share of the uses at a distance of at most 1, 10, 40, 200 batches (`WITHIN_BATCHES`).
        quantiles: distances that 10, 25, 50, 75, 90 and 99 % of the other uses do not exceed (`QUANTILES`); empty where
            no row comes back.
        curve: pairs of a distance and the share of the uses that do not exceed it, ascending.
    """

    batch_size: int
    batches: int
    uses: int
    first: float
    within: tuple[float, ...]
    quantiles: tuple[int, ...]
    curve: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class LookUps:
    """The look-ups of a split.

    Attributes:
        split: `train`, or `test` where there are no training samples.
        samples: number of samples.
        label_rates: for each label, the share of samples in which it is 1.
        tables: the look-ups of each table, in order.
        total: the look-ups of all tables together.
        reuse: distances between uses.
    """

    split: str
    samples: int
    label_rates: tuple[float, ...]
    tables: tuple[TableLookUps, ...]
    total: TableLookUps
    reuse: Reuse

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def measure_look_ups(directory: Path, manifest: ShardManifest, batch_size: int) -> LookUps:
    """Read the look-ups of the training split, or of the test split where that is empty.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        batch_size: samples of a batch B.

    Raises:
        DataError: there are no samples, their look-ups are drawn, or a file is missing or damaged.
        CapacityError: this host lacks the memory for the counts of each row.
    """
    split = "train" if manifest.rows("train") else "test"
    samples = manifest.rows(split)
    if not samples:
        raise DataError(f"{directory}: has no samples to measure")
    require_countable(directory, manifest, _ROW_BYTES)
    offsets = np.concatenate(([0], np.cumsum(manifest.table_rows, dtype=np.int64)))
    counts, distances, first_uses = _read(directory, manifest, split, batch_size, offsets)
    shards = manifest.shards(split)
    positives = zip(*((shard.positives, *shard.more_positives) for shard in shards), strict=True)
    buckets = read_unseen_buckets(directory, manifest)
    others = [0 if table.name in manifest.hashed_tables else buckets for table in manifest.tables]
    missing = [
        _missing(directory, manifest, split, table.name, int(of_id_0), last)
        for table, of_id_0, last in zip(manifest.tables, counts[offsets[:-1]], others, strict=True)
    ]
    tables = tuple(
        _table(table.name, counts[begin:end], last, gone)
        for table, begin, end, last, gone in zip(
            manifest.tables, offsets[:-1].tolist(), offsets[1:].tolist(), others, missing, strict=True
        )
    )
    look_ups = max(1, int(counts.sum()))
    without = sum(table.without_id * table.look_ups for table in tables) / look_ups
    known = [gone for gone in missing if gone is not None]
    total = _summary("all", counts, without, sum(known) / look_ups if len(known) == len(missing) else None)
    reuse = _reuse(distances, first_uses, batch_size, -(-samples // batch_size))
    return LookUps(split, samples, tuple(sum(label) / samples for label in positives), tables, total, reuse)


def _read(
    directory: Path, manifest: ShardManifest, split: str, batch_size: int, offsets: Int64s
) -> tuple[Int64s, Int64s, int]:
    """Look-ups of each row, int64 `[R]`, uses at each distance, int64 `[batches]`, and the number of first uses."""
    firsts = offsets[list(manifest.feature_tables)]
    counts = np.zeros(offsets[-1], dtype=np.int64)
    last_batch = np.full(offsets[-1], -1, dtype=np.int64)
    distances = np.zeros(-(-manifest.rows(split) // batch_size) + 1, dtype=np.int64)
    batch, step = 0, batch_size * max(1, _READ_SAMPLES // batch_size)
    with ClickShards(directory, manifest, split) as shards:
        for begin in range(0, shards.rows, step):
            block = shards.read_look_ups(begin, min(begin + step, shards.rows)).plus(firsts)
            for first in range(0, block.samples, batch_size):
                rows, uses = np.unique(
                    block.part(first, min(first + batch_size, block.samples)).values, return_counts=True
                )
                counts[rows] += uses
                before = last_batch[rows]
                np.add.at(distances, np.where(before < 0, 0, batch - before), 1)
                last_batch[rows] = batch
                batch += 1
    first_uses = int(distances[0])
    distances[0] = 0
    return counts, distances, first_uses


def _missing(
    directory: Path, manifest: ShardManifest, split: str, table: str, of_id_0: int, buckets: int
) -> int | None:
    """Look-ups of missing values among those of id 0; None where they cannot be told from rare ones."""
    if table in manifest.hashed_tables or buckets or not of_id_0:
        return of_id_0
    if manifest.waiting is None or manifest.grown_from is not None or split != "train":
        return None
    return max(0, of_id_0 - int(read_waiting(directory, manifest, table).counts.sum()))


def _table(name: str, counts: Int64s, last_other: int, missing: int | None) -> TableLookUps:
    look_ups = max(1, int(counts.sum()))
    without = int(counts[: last_other + 1].sum()) / look_ups
    return _summary(name, counts, without, None if missing is None else missing / look_ups)


def _summary(name: str, counts: Int64s, without_id: float, missing: float | None) -> TableLookUps:
    descending = np.sort(counts)[::-1]
    summed = np.cumsum(descending)
    look_ups = int(summed[-1])

    def share(ids: int) -> float:
        return int(summed[ids - 1]) / max(1, look_ups)

    places = np.unique(np.geomspace(1, len(counts), _CURVE_POINTS).round().astype(np.int64)).tolist()
    return TableLookUps(
        name,
        len(counts),
        int(np.count_nonzero(counts)),
        look_ups,
        without_id,
        missing,
        tuple(share(max(1, int(np.ceil(top * len(counts))))) for top in TOP_SHARES),
        tuple((ids / len(counts), share(ids)) for ids in places),
    )


def _reuse(distances: Int64s, first_uses: int, batch_size: int, batches: int) -> Reuse:
    summed = np.cumsum(distances)
    again = int(summed[-1])
    uses = max(1, again + first_uses)

    def within(limit: int) -> float:
        return int(summed[min(limit, len(summed) - 1)]) / uses

    places: Sequence[int] = np.unique(np.geomspace(1, max(1, batches), _CURVE_POINTS).round().astype(np.int64)).tolist()
    quantiles = np.searchsorted(summed, [np.ceil(share * again) for share in QUANTILES]).tolist() if again else []
    return Reuse(
        batch_size,
        batches,
        again + first_uses,
        first_uses / uses,
        tuple(map(within, WITHIN_BATCHES)),
        tuple(quantiles),
        tuple((limit, within(limit)) for limit in places),
    )
