"""`python -m benchmarks store`: rows and bytes per second that trainers get from embedding servers, put there and add.

In shared memory, beside `numpy.take` and index assignment of the same rows of the same memory; through MPI, beside
plain blocking messages of the same size between the same ranks. The contenders run in turn on the same ranks, and a
fraction is taken within each turn. Trainers work at the same time; their rates are added up.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.sections.execution import TRANSFER_WAYS
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report, median
from benchmarks.jobs.links import LINKS, NODES, Link, run_ranks, usable_links
from benchmarks.store.ranks import NEAR, Measurement, StoreSettings

_TABLE_BYTES, _QUICK_TABLE_BYTES = 1 << 29, 1 << 27
_PLAIN = {NEAR: {"get": "take", "put": "assign", "add": "assign"}}
_PLAIN |= {way: {"get": "recv", "put": "send", "add": "send"} for way in TRANSFER_WAYS}
"""What the store's operations are measured beside, by the way that rows travel."""


def run(arguments: argparse.Namespace) -> Report:
    """Measure all worlds on all links; see the module's docstring."""
    facts = {"rows_per_call": arguments.rows, "server_poll_us": arguments.poll_us, "backend": arguments.backend}
    report = Report("store", facts | {"measured": []})
    names = arguments.link or (["native", "1gbit"] if arguments.quick else LINKS)
    for link in usable_links([NODES if name == NODES.name else LINKS[name] for name in names], report):
        crosses_hosts = link == NODES or link.is_emulated
        for servers in arguments.servers or ([1] if crosses_hosts else [1, 2]):
            for trainers in arguments.trainers or ([1] if arguments.quick or crosses_hosts else [1, 2]):
                settings = _settings(arguments, link, servers, trainers)
                _add_world(report, link, settings, _measure(settings, link))
    return report


def _settings(arguments: argparse.Namespace, link: Link, servers: int, trainers: int) -> StoreSettings:
    settings = StoreSettings(
        servers=servers,
        trainers=trainers,
        row_bytes=arguments.row_bytes or ([64, 512] if arguments.quick else [64, 128, 256, 512, 1024]),
        ways=[way for way in arguments.ways or (NEAR, "messages") if way != NEAR or link == LINKS["native"]],
        rows=arguments.rows,
        calls=4,
        table_bytes=_QUICK_TABLE_BYTES if arguments.quick else _TABLE_BYTES,
        runs=arguments.runs,
        poll_us=arguments.poll_us,
        backend=arguments.backend,
    )
    for row_bytes in settings.row_bytes:
        if row_bytes % 4:
            raise ConfigError(f"--row-bytes {row_bytes}: rows are of float32 numbers, use a multiple of 4")
        most = settings.table_bytes // row_bytes // trainers
        if settings.rows > most:
            raise ConfigError(
                f"--rows {settings.rows}: a trainer's share of the table is {most} rows of {row_bytes} bytes, use fewer"
            )
    return settings


def _measure(settings: StoreSettings, link: Link) -> list[Measurement]:
    """Start the ranks: oracle and servers on one host, over a link each trainer on a host of its own."""
    behind = [1] * settings.trainers if link.is_emulated else []
    hosts = [1 + settings.servers, *behind] if behind else [1 + settings.servers + settings.trainers]
    program = [sys.executable, "-m", "benchmarks.store.ranks", json.dumps(asdict(settings))]
    with tempfile.TemporaryDirectory(prefix="bagpipe-bench-") as folder:
        output = run_ranks(hosts, link, program, share=Path(folder), timeout_s=600.0)
    # An MPI library may print something of its own behind it.
    found: list[Measurement] = json.loads(next(line for line in output.splitlines() if line.startswith("[{")))
    return found


def _add_world(report: Report, link: Link, settings: StoreSettings, found: list[Measurement]) -> None:
    """One table: a line for each row size and way."""
    table, processor = [], []
    for measurement in found:
        rates, row_bytes = measurement["rows_per_s"], measurement["row_bytes"]
        line = [f"{row_bytes} B, {measurement['way']}"]
        figure: dict[str, Any] = {"row_bytes": row_bytes, "way": measurement["way"]}
        figure |= {"link": link.name, "servers": settings.servers, "trainers": settings.trainers}
        for name, plain in _PLAIN[measurement["way"]].items():
            rows_per_s = median(rates[name])
            plain_per_s = median(rates[plain])
            fraction = median([own / other for own, other in zip(rates[name], rates[plain], strict=True)])
            figure |= {
                f"{name}_rows_per_s": rows_per_s,
                f"{name}_gb_per_s": median([rate * row_bytes / 1e9 for rate in rates[name]]),
                f"{plain}_rows_per_s": plain_per_s,
                f"{name}_fraction_of_{plain}": fraction,
            }
            line += [
                f"{rows_per_s / 1e6:.2f}",
                f"{rows_per_s * row_bytes / 1e9:.2f}",
                f"{plain_per_s * row_bytes / 1e9:.2f}",
                f"{fraction:.0%}",
            ]
        cpu_us = {name: median(found) for name, found in measurement["cpu_us_per_row"].items()}
        report.figures["measured"].append(figure | {f"{name}_cpu_us_per_row": found for name, found in cpu_us.items()})
        table.append(line)
        beside = _PLAIN[measurement["way"]]
        processor.append([line[0], *(f"{cpu_us[name]:.3f}" for name in (*beside, beside["get"], beside["put"]))])
    title = f"link {link.name}, {settings.servers} servers, {settings.trainers} trainers, {settings.rows} rows a call"
    headings = [f"{name} Mrow/s|GB/s|plain|of plain".split("|") for name in ("get", "put", "add")]
    report.table(f"{title}; medians of {settings.runs} runs", ["rows", *chain(*headings)], table)
    headings_cpu = ["rows", "get", "put", "add", "plain get", "plain put"]
    report.table("processor time of servers and trainers, us a row", headings_cpu, processor)
