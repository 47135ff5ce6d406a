"""Rows per second of `bagpipe prepare` beside those of the bare pyarrow parser, on generated rows.

    python benchmarks/prepare_speed.py --rows 500000 --repeats 3

The bare parser reads the same file into the same column types (text columns stay text) with all cores and keeps nothing
but one block. The last line is one JSON object.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from bagpipe_hpc.storage.click_shards import COMPRESSIONS
from data_prep import criteo
from data_prep.generate import generate_clicks
from data_prep.prepare import PrepareSettings, prepare_clicks

_BLOCK_BYTES = 1 << 20


def parse_bare(path: Path, use_threads: bool) -> None:
    columns = {"label": pa.uint8()}
    columns |= dict.fromkeys(criteo.INTEGER_NAMES, pa.int64()) | dict.fromkeys(criteo.TABLE_NAMES, pa.binary())
    reader = pa_csv.open_csv(
        path,
        pa_csv.ReadOptions(column_names=criteo.NAMES, use_threads=use_threads, block_size=_BLOCK_BYTES),
        pa_csv.ParseOptions(delimiter="\t", quote_char=False),
        pa_csv.ConvertOptions(column_types=columns, null_values=[""], strings_can_be_null=True),
    )
    for _ in reader:
        pass


def prepare(path: Path, output: Path, settings: PrepareSettings) -> None:
    shutil.rmtree(output, ignore_errors=True)
    prepare_clicks([str(path)], output, settings, lambda _: None)


def rows_per_second(rows: int, repeats: int, work: Callable[[], None]) -> float:
    """Median over the repeats."""
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        rates.append(rows / (time.perf_counter() - start))
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="generated rows (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the median counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "clicks.tsv"), Path(folder, "shards")
        start = time.perf_counter()
        generate_clicks(arguments.rows, path)
        rates = {"generate": arguments.rows / (time.perf_counter() - start)}
        contenders: dict[str, Callable[[], None]] = {
            "bare_1_thread": lambda: parse_bare(path, use_threads=False),
            "bare": lambda: parse_bare(path, use_threads=True),
        }
        for compression in COMPRESSIONS:
            settings = PrepareSettings(compression=compression)
            contenders[f"prepare_{compression}"] = lambda settings=settings: prepare(path, output, settings)
        hashed = PrepareSettings(max_rows_per_table=100_000)
        contenders["prepare_hashed_lzf"] = lambda: prepare(path, output, hashed)
        for name, work in contenders.items():
            rates[name] = rows_per_second(arguments.rows, arguments.repeats, work)
    for name, rate in rates.items():
        print(f"{name:20} {rate:12,.0f} rows/s   {rate / rates['bare']:5.0%} of the bare parser")
    facts = {"rows": arguments.rows, "repeats": arguments.repeats, "cores": len(os.sched_getaffinity(0))}
    facts |= {"python": platform.python_version(), "pyarrow": pa.__version__}
    print(json.dumps(facts | {"rows_per_s": {name: round(rate) for name, rate in rates.items()}}))


if __name__ == "__main__":
    main()
