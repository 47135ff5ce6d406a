"""`python -m benchmarks prepare`: rows per second of `bagpipe prepare` beside those of the bare pyarrow parser.

The bare parser reads the same file into the same column types (categorical values stay text), with as many threads, and
keeps nothing: as a stream of blocks, which is how a preparation reads, and as a whole in memory. It hands lists on as
texts; where there are any, it also runs with pyarrow's functions that split them. The contenders run in turn; a
fraction is taken within each turn, of rows/s, or of the rows of a second of a processor.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, run_ranks
from benchmarks.prepare.texts import SPLIT, STREAM, WHOLE, Text, criteo_text, schema_text
from data_prep.ordered_map import worker_threads
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

_QUICK_ROWS = 100_000


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Attributes:
        seconds: by the clock.
        cpu_s: of all threads and processes.
    """

    seconds: float
    cpu_s: float


def run(arguments: argparse.Namespace) -> Report:
    """Measure everything that makes rows of text; see the module's docstring.

    Raises:
        ConfigError: there is no such schema, or a file for more than one.
        RanksFailedError: a preparation on several ranks ended with an error.
    """
    pa.set_cpu_count(worker_threads())
    rows = _QUICK_ROWS if arguments.quick else arguments.rows
    if arguments.clicks is not None and len(arguments.schema) > 1:
        raise ConfigError(f"benchmarks prepare: {arguments.clicks} is one text; give one --schema, or generate rows")
    report = Report("prepare", {"threads": worker_threads(), "texts": {}})
    for name in arguments.schema or [None]:
        with tempfile.TemporaryDirectory(prefix="bagpipe-bench-", dir=arguments.path) as scratch:
            folder = Path(scratch)
            if name is None:
                text = criteo_text(arguments.clicks, rows, folder)
            else:
                text = schema_text(name, rows, folder, arguments.clicks)
            _measure(report, text, folder, arguments)
    return report


def _measure(report: Report, text: Text, folder: Path, arguments: argparse.Namespace) -> None:
    """Run what reads a text, in turn."""
    contenders = text.bare_parsers()
    outputs = {}
    for number in arguments.ranks:
        what = f"the command, {number} {'rank' if number == 1 else 'ranks'}"
        outputs[what] = folder / what
        contenders[what] = _command(text, outputs[what], number)
    for what, settings in {} if arguments.ranks else text.preparations.items():
        outputs[what] = folder / what
        contenders[what] = _preparation(text.file, outputs[what], settings)
    for work in contenders.values():
        work()  # Not timed: brings the file into memory, and starts what each contender needs.
    turns = [{what: _timed(work) for what, work in contenders.items()} for _ in range(arguments.runs)]
    shard_bytes = {what: _shard_bytes(output) for what, output in outputs.items()}
    text_bytes = text.file.stat().st_size
    report.figures["texts"][text.name] = {
        "rows": text.rows,
        "text_bytes_per_row": round(text_bytes / text.rows, 1),
        "contenders": _add_table(report, text, turns, shard_bytes),
    }


def _preparation(clicks: Path, output: Path, settings: PrepareSettings) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(output, ignore_errors=True)
        prepare_clicks([str(clicks)], output, settings, lambda _: None)

    return prepare


def _command(text: Text, output: Path, ranks: int) -> Callable[[], None]:
    """The command itself on ranks of this machine, their start and end included."""
    command: list[str | Path] = [sys.executable, "-m", "bagpipe_hpc", "prepare"]
    command += [*text.arguments, "--input", text.file]

    def prepare() -> None:
        shutil.rmtree(output, ignore_errors=True)
        run_ranks([ranks], LINKS["native"], [*command, "--output", output], share=output.parent)

    return prepare


def _timed(work: Callable[[], None]) -> Cost:
    start_s, start_cpu_s = time.perf_counter(), _cpu_s()
    work()
    return Cost(time.perf_counter() - start_s, _cpu_s() - start_cpu_s)


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _shard_bytes(output: Path) -> int:
    return sum(shard.stat().st_size for shard in output.glob("*.h5"))


def _add_table(
    report: Report, text: Text, turns: list[dict[str, Cost]], shard_bytes: dict[str, int]
) -> dict[str, dict[str, float]]:
    """Add the table of a text.

    Returns:
        The figures of each contender.
    """
    figures: dict[str, dict[str, float]] = {}
    table = []
    for name in turns[0]:
        figure = {
            "rows_per_s": median([text.rows / turn[name].seconds for turn in turns]),
            "cpu_us_per_row": median([turn[name].cpu_s / text.rows * 1e6 for turn in turns]),
        }
        keys = {STREAM: "fraction_of_stream", SPLIT: "fraction_of_split", WHOLE: "fraction_of_whole"}
        for bare, key in keys.items():
            if bare in turns[0]:
                figure[key] = median([turn[bare].seconds / turn[name].seconds for turn in turns])
        figure["fraction_of_stream_cpu"] = median([turn[STREAM].cpu_s / turn[name].cpu_s for turn in turns])
        if name in shard_bytes:
            figure["shard_bytes_per_row"] = round(shard_bytes[name] / text.rows, 1)
        figures[name] = figure
        shares = ("fraction_of_stream", "fraction_of_split", "fraction_of_whole", "fraction_of_stream_cpu")
        table.append(
            [
                name,
                f"{figure['rows_per_s']:,.0f}",
                *(f"{figure[key]:.0%}" if key in figure else "-" for key in shares),
                f"{figure['cpu_us_per_row']:.2f}",
                f"{figure['shard_bytes_per_row']:.1f}" if name in shard_bytes else "-",
            ]
        )
    report.table(
        f"{text.rows} rows of text ({text.name}) to shards, {report.figures['threads']} cores; medians of "
        f"{len(turns)} turns",
        [
            "what",
            "rows/s",
            "of streaming",
            "of it and lists",
            "of whole file",
            "of streaming, CPU",
            "CPU us/row",
            "shard B/row",
        ],
        table,
    )
    return figures
