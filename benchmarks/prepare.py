"""`python -m benchmarks prepare`: rows per second of `bagpipe prepare` beside those of the bare pyarrow parser.

The bare parser reads the same file into the same column types (categorical values stay text), with as many threads, and
keeps nothing: as a stream of blocks, which is how a preparation reads, and as a whole in memory. The contenders run in
turn; a fraction is taken within each turn.
"""

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from bagpipe_hpc.tools.report import Report, median
from data_prep.formats import criteo
from data_prep.generate import generate_clicks
from data_prep.ordered_map import worker_threads
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.text_blocks import TextPosition, read_blocks

_QUICK_ROWS = 100_000
_HASHED_ROWS = 100_000
_WHOLE_BYTES = 1 << 30
"""Larger files are not parsed as a whole: that takes twice their size of memory."""
_STREAM, _WHOLE = "bare parser, streaming", "bare parser, whole file"
_PREPARATIONS = {
    "vocabularies, lzf": PrepareSettings(),
    "vocabularies, no compression": PrepareSettings(compression="none"),
    "vocabularies, gzip": PrepareSettings(compression="gzip"),
    "hashing, lzf": PrepareSettings(max_rows_per_table=_HASHED_ROWS),
    "hashing, no compression": PrepareSettings(max_rows_per_table=_HASHED_ROWS, compression="none"),
    "vocabularies, lzf, in Python": PrepareSettings(backend="reference"),
}
_COLUMN_TYPES = (
    {"label": pa.uint8()}
    | dict.fromkeys(criteo.INTEGER_NAMES, pa.int64())
    | dict.fromkeys(criteo.TABLE_NAMES, pa.binary())
)
_FORMAT: dict[str, Any] = {
    "read_options": pa_csv.ReadOptions(column_names=criteo.NAMES, use_threads=True, block_size=1 << 20),
    "parse_options": pa_csv.ParseOptions(delimiter="\t", quote_char=False),
    "convert_options": pa_csv.ConvertOptions(column_types=_COLUMN_TYPES, null_values=[""], strings_can_be_null=True),
}


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Attributes:
        seconds: by the clock.
        cpu_s: of all threads.
    """

    seconds: float
    cpu_s: float


def run(arguments: argparse.Namespace) -> Report:
    """Measure everything that makes rows of text; see the module's docstring."""
    threads = worker_threads()
    pa.set_cpu_count(threads)
    with tempfile.TemporaryDirectory(prefix="bagpipe-bench-") as name:
        folder = Path(name)
        clicks, rows = _clicks(arguments, folder)
        text_bytes = clicks.stat().st_size
        contenders: dict[str, Callable[[], None]] = {_STREAM: lambda: _parse_stream(clicks)}
        if text_bytes <= _WHOLE_BYTES:
            contenders[_WHOLE] = lambda: _parse_whole(clicks)
        for what, settings in _PREPARATIONS.items():
            contenders[what] = _preparation(clicks, folder / what, settings)
        for work in contenders.values():
            work()  # Not timed: brings the file into memory, and starts what each contender needs.
        turns = [{what: _timed(work) for what, work in contenders.items()} for _ in range(arguments.runs)]
        shard_bytes = {what: _shard_bytes(folder / what) for what in _PREPARATIONS}
    report = Report("prepare", {"rows": rows, "text_bytes_per_row": round(text_bytes / rows, 1), "threads": threads})
    _add_figures(report, rows, turns, shard_bytes)
    return report


def _clicks(arguments: argparse.Namespace, folder: Path) -> tuple[Path, int]:
    """The text to read, not compressed, and its rows."""
    plain = folder / "clicks.tsv"
    if arguments.clicks is None:
        rows = _QUICK_ROWS if arguments.quick else arguments.rows
        generate_clicks(rows, plain)
        return plain, rows
    rows = 0
    with plain.open("wb") as file:
        for block in read_blocks(arguments.clicks, TextPosition()):
            file.write(block.text)
            rows = block.end.line
    return plain, rows


def _parse_stream(clicks: Path) -> None:
    with pa_csv.open_csv(clicks, **_FORMAT) as reader:
        for _ in reader:
            pass


def _parse_whole(clicks: Path) -> None:
    pa_csv.read_csv(clicks, **_FORMAT)


def _preparation(clicks: Path, output: Path, settings: PrepareSettings) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(output, ignore_errors=True)
        prepare_clicks([str(clicks)], output, settings, lambda _: None)

    return prepare


def _timed(work: Callable[[], None]) -> Cost:
    start_s, start_cpu_s = time.perf_counter(), _cpu_s()
    work()
    return Cost(time.perf_counter() - start_s, _cpu_s() - start_cpu_s)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _shard_bytes(output: Path) -> int:
    return sum(shard.stat().st_size for shard in output.glob("*.h5"))


def _add_figures(report: Report, rows: int, turns: list[dict[str, Cost]], shard_bytes: dict[str, int]) -> None:
    figures: dict[str, dict[str, float]] = {}
    table = []
    for name in turns[0]:
        figure = {
            "rows_per_s": median([rows / turn[name].seconds for turn in turns]),
            "cpu_us_per_row": median([turn[name].cpu_s / rows * 1e6 for turn in turns]),
        }
        for bare, key in ((_STREAM, "fraction_of_stream"), (_WHOLE, "fraction_of_whole")):
            if bare in turns[0]:
                figure[key] = median([turn[bare].seconds / turn[name].seconds for turn in turns])
        if name in shard_bytes:
            figure["shard_bytes_per_row"] = round(shard_bytes[name] / rows, 1)
        figures[name] = figure
        table.append(
            [
                name,
                f"{figure['rows_per_s']:,.0f}",
                *(
                    f"{figure[key]:.0%}" if key in figure else "-"
                    for key in ("fraction_of_stream", "fraction_of_whole")
                ),
                f"{figure['cpu_us_per_row']:.2f}",
                f"{figure['shard_bytes_per_row']:.1f}" if name in shard_bytes else "-",
            ]
        )
    report.figures["contenders"] = figures
    report.table(
        f"{rows} rows of text to shards, {report.figures['threads']} threads; medians of {len(turns)} turns",
        ["what", "rows/s", "of streaming", "of whole file", "CPU us/row", "shard B/row"],
        table,
    )
