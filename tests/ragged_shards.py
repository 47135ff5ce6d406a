"""Tiny shards with ragged features, shared tables, several labels and weights of samples, written directly."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bagpipe_hpc.plan.bags import Bags, offsets_of
from bagpipe_hpc.storage.shards.entries import FeatureInfo, ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest, save_manifest
from bagpipe_hpc.storage.shards.samples import RaggedColumn, Samples
from bagpipe_hpc.storage.shards.writer import write_shard

TABLES = (TableInfo("user", 23), TableInfo("item", 40), TableInfo("genre", 7))
FEATURES = (
    FeatureInfo("user", "user"),
    FeatureInfo("history", "item", ragged=True, longest=6),
    FeatureInfo("item", "item"),
    FeatureInfo("genres", "genre", ragged=True, weighted=True, longest=4),
)
"""A history that shares the table of items, and genres with weights."""


def draw_samples(
    seed: int,
    samples: int,
    *,
    features: Sequence[FeatureInfo] = FEATURES,
    tables: Sequence[TableInfo] = TABLES,
    labels: int = 1,
    weighted_samples: bool = False,
    dense_features: int = 3,
    unused: Sequence[str] = (),
) -> Samples:
    """Random samples: a third of the bags is empty, and small ids are frequent, so that bags hold some twice.

    Nobody has an id of the `unused` features, which are ragged.
    """
    rng = np.random.default_rng(seed)
    rows = {table.name: table.rows for table in tables}

    def ids(feature: FeatureInfo, count: int) -> np.ndarray:
        return (rows[feature.table] * rng.random(count) ** 2).astype(np.int32)

    plain = [ids(feature, samples) for feature in features if not feature.ragged]
    ragged = {}
    for feature in features:
        if feature.ragged:
            lengths = rng.integers(0, feature.longest + 1, samples) * (rng.random(samples) > 1 / 3)
            lengths *= feature.name not in unused
            weights = rng.normal(1, 0.5, lengths.sum()).astype(np.float32) if feature.weighted else None
            ragged[feature.name] = RaggedColumn(lengths, ids(feature, int(lengths.sum())), weights)
    return Samples(
        dense=rng.random((samples, dense_features), dtype=np.float32),
        sparse=np.stack(plain, axis=1) if plain else np.empty((samples, 0), np.int32),
        label=rng.integers(0, 2, samples if labels == 1 else (samples, labels), dtype=np.uint8),
        ragged=ragged,
        weight=rng.random(samples, dtype=np.float32) if weighted_samples else None,
    )


def write_ragged(
    folder: Path,
    seed: int = 1,
    samples: int = 100,
    *,
    test_samples: int = 20,
    features: Sequence[FeatureInfo] = FEATURES,
    tables: Sequence[TableInfo] = TABLES,
    labels: Sequence[str] = ("label",),
    weighted_samples: bool = False,
    dense_features: int = 3,
    rows_per_shard: int = 64,
    unused: Sequence[str] = (),
) -> ShardManifest:
    """Write shards of `draw_samples` (training samples first, then those of tests) and their manifest.

    Args:
        folder: the shard directory, which is made.
        seed: same seed, same samples.
        samples: training samples; 0 for none.
        test_samples: test samples; 0 for none.
        features: the features in order.
        tables: their tables; each is used.
        labels: names of the labels.
        weighted_samples: whether samples have weights.
        dense_features: number of dense features; 0 for none.
        rows_per_shard: samples of a shard.
        unused: ragged features of which nobody has an id.

    Returns:
        The manifest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = draw_samples(
        seed,
        samples + test_samples,
        features=features,
        tables=tables,
        labels=len(labels),
        weighted_samples=weighted_samples,
        dense_features=dense_features,
        unused=unused,
    )

    def shards(split: str, first: int, last: int) -> Iterator[ShardInfo]:
        for number, begin in enumerate(range(first, last, rows_per_shard)):
            end = min(begin + rows_per_shard, last)
            middle = (begin + end) // 2
            blocks = [part_of(whole, begin, middle), part_of(whole, middle, end)]
            yield write_shard(folder / f"{split}-{number:05d}.h5", end - begin, blocks)

    manifest = ShardManifest(
        1,
        "drawn",
        dense_features,
        tuple(tables),
        train=tuple(shards("train", 0, samples)),
        test=tuple(shards("test", samples, samples + test_samples)),
        features=tuple(features),
        labels=tuple(labels),
        weighted_samples=weighted_samples,
    )
    save_manifest(folder, manifest)
    return manifest


def part_of(whole: Samples, first: int, last: int) -> Samples:
    """Samples `first` up to `last`."""
    return replace(
        whole,
        dense=whole.dense[first:last],
        sparse=whole.sparse[first:last],
        label=whole.label[first:last],
        ragged={name: column.part(first, last) for name, column in whole.ragged.items()},
        weight=None if whole.weight is None else whole.weight[first:last],
    )


def bags_of(whole: Samples, features: Sequence[FeatureInfo], longest: Sequence[int] = ()) -> tuple[Bags, Bags]:
    """What readers are to give of samples: the ids, and the weight of each; bag by bag, as slow as it is plain."""
    ids: list[int] = []
    weights: list[float] = []
    lengths = np.zeros((len(whole), len(features)), dtype=np.int64)
    ends = {name: np.cumsum(column.lengths) for name, column in whole.ragged.items()}
    for sample in range(len(whole)):
        plain = iter(whole.sparse[sample].tolist())
        for number, feature in enumerate(features):
            bag, of_bag = [0], [1.0]
            if not feature.ragged:
                bag = [next(plain)]
            else:
                column = whole.ragged[feature.name]
                end = int(ends[feature.name][sample])
                begin = end - int(column.lengths[sample])
                if longest and longest[number]:
                    begin = max(begin, end - longest[number])
                bag = column.values[begin:end].tolist()
                of_bag = [1.0] * len(bag) if column.weights is None else column.weights[begin:end].tolist()
            ids += bag
            weights += of_bag
            lengths[sample, number] = len(bag)
    offsets = offsets_of(lengths) if whole.ragged else None
    return (
        Bags(np.array(ids, dtype=np.int64), len(features), offsets),
        Bags(np.array(weights, dtype=np.float32), len(features), offsets),
    )
