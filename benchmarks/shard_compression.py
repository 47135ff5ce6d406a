"""Shards by HDF5 filters of the package `hdf5plugin` beside today's compressions: size, preparation, reading.

Usage: python -m benchmarks.shard_compression CLICKS.tsv [RUNS]     (pip install hdf5plugin; it is no dependency)

A preparation of plain text by native code; then all training rows in blocks of 8192, in random order, as training reads
them. In turn; medians. HDF5 applies the plug-in's filters itself, in one thread.
"""

import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hdf5plugin
import numpy as np

from bagpipe_hpc.storage.shards import writer
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.shards.samples import CHUNK_ROWS
from data_prep import backend, prepare
from data_prep.prepare_settings import PrepareSettings

BLOSC = hdf5plugin.Blosc
NATIVE, TODAY = backend._NATIVE, writer._dataset_options


class Figures(NamedTuple):
    """Of one run: bytes a row, rows prepared a second, rows read a second."""

    row_bytes: float
    prepared_per_s: float
    read_per_s: float


def blosc(codec: str, level: int) -> Callable[[bool], Any]:
    return lambda shuffled: BLOSC(codec, level, shuffle=BLOSC.SHUFFLE if shuffled else BLOSC.NOSHUFFLE)


CASES: dict[str, str | Callable[[bool], Any]] = {
    "lzf, own code in threads (default)": "lzf",
    "gzip 1, zlib in threads": "gzip",
    "none": "none",
    "blosc lz4, level 5": blosc("lz4", 5),
    "blosc zstd, level 1": blosc("zstd", 1),
    "blosc zstd, level 3": blosc("zstd", 3),
    "zstd, level 3": lambda _: hdf5plugin.Zstd(clevel=3),
}
"""A setting of `--compression`, or what gives the filter of a dataset by whether its bytes are to be shuffled."""


def run(clicks: Path, case: str | Callable[[bool], Any], output: Path) -> Figures:
    if isinstance(case, str):
        settings = PrepareSettings(compression=case, rows_per_shard=1 << 18)
        backend._NATIVE, writer._dataset_options = NATIVE, TODAY
    else:
        settings = PrepareSettings(rows_per_shard=1 << 18)
        backend._NATIVE = dataclasses.replace(NATIVE, encoders=None)  # HDF5 compresses
        writer._dataset_options = lambda name, *_, **__: {"track_times": False, **case(name in writer.SHUFFLED)}
    start_s = time.perf_counter()
    manifest = prepare.prepare_clicks([str(clicks)], output, settings, lambda _: None)
    prepared_s = time.perf_counter() - start_s
    shards = manifest.train + manifest.test
    rows = sum(shard.rows for shard in shards)
    blocks = np.random.default_rng(1).permutation(manifest.rows("train") // CHUNK_ROWS) * CHUNK_ROWS
    start_s = time.perf_counter()
    with ClickShards(output, manifest, "train") as train:
        for first in blocks.tolist():
            for read in (train.read_sparse, train.read_dense, train.read_labels):
                read(first, first + CHUNK_ROWS)
    read_s = time.perf_counter() - start_s
    return Figures(sum(shard.bytes for shard in shards) / rows, rows / prepared_s, len(blocks) * CHUNK_ROWS / read_s)


def main(clicks: Path, runs: int) -> None:
    figures: dict[str, list[Figures]] = {name: [] for name in CASES}
    for turn in range(runs + 1):  # the first is not counted: it brings the file into memory
        for name, case in CASES.items():
            with tempfile.TemporaryDirectory() as folder:
                found = run(clicks, case, Path(folder) / "shards")
            if turn:
                figures[name].append(found)
    print("| compression | bytes a row | rows/s prepared | rows/s read |\n|---|---|---|---|")
    for name, runs_of_it in figures.items():
        size, prepared, read = map(statistics.median, zip(*runs_of_it, strict=True))
        print(f"| {name} | {size:.1f} | {prepared:,.0f} | {read:,.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
