"""Output folders as runs leave them, and what a page about them holds."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import to_toml
from bagpipe_hpc.config.schema import CacheConfig, Config
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.tools.run_report.page import report_page
from bagpipe_hpc.tools.run_report.run_files import load_runs

MEANS = StepStats(
    steps=10,
    samples=640,
    total_s=2.0,
    wait_rows_s=0.5,
    wait_reductions_s=0.25,
    rows_fetched=100,
    rows_written_back=90,
    reduced_now=200,
    copied=50,
    sent_home=40,
).per_step()
SPANS = {"plan": 1.0, "send": 0.5, "fill": 0.25, "fetch": 2.0, "write back": 1.0, "barrier": 0.5}
QUALITY = {"samples": 99, "log_loss": 0.4, "normalised_entropy": 0.5, "calibration": 1.0, "group_auc": None}


class Page(HTMLParser):
    """What a page holds; errors in its nesting fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())
        if {"th", "td"} & set(self._open[-1:]):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def write_run(folder: Path, *, steps: int = 30, finished: bool = True, config: Config | None = None) -> Path:
    """An output folder as a run leaves it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config or Config(cache=CacheConfig(sharing="home"))), encoding="utf-8")
    write_events(folder, events_of(steps))
    (folder / "logs" / "trainer-0.log").write_text(
        "2026-11-23 08:00:00,123 INFO bagpipe_hpc.launch: process 1 on vm\n"
        "2026-11-23 08:00:01,456 WARNING bagpipe_hpc.roles.oracle: batch 7 has <more> copies\n"
        "2026-11-23 08:00:02,789 ERROR bagpipe_hpc.telemetry.run_log: trainer 0 failed: out of luck\n",
        encoding="utf-8",
    )
    if finished:
        load = {"rows_got": 900, "rows_put": 800, "rows_added": 0, "bytes": 1_700_000}
        summary = {"steps": steps, "samples_per_s": 320.0, "hit_rate": 0.75, "trainers": [MEANS, MEANS], "seconds": 9.5}
        summary |= {"servers": 2, "lookahead_batches": 40, "group_batches": 10, "cache_rows": 900, "cache_bytes": 5e6}
        summary |= {"moved_at_servers": [load, load], "dense_weights": 1234}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        roles = [("oracle", 0), ("server", 0), ("server", 1), ("trainer", 0), ("trainer", 1)]
        ranks = [
            {
                "role": role,
                "role_rank": number,
                "host": "node1",
                "peak_bytes": 10**8,
                "processor_s": 2.5,
                "spans_s": SPANS,
            }
            for role, number in roles
        ]
        (folder / "resources.json").write_text(json.dumps({"ranks": ranks}), encoding="utf-8")
    return folder


def events_of(steps: int) -> Iterator[dict[str, Any]]:
    yield {"event": "resumed", "step": 5, "directory": "run/checkpoints/step-00000005", "changes": ["a: 1 -> 2"]}
    for step in range(10, steps + 1, 10):
        told = {"loss": 1.0 / step, "samples_per_s": 300.0 + step, "hit_rate": 0.5, "wait_rows_share": 0.125}
        told |= {"of_trainers": {"number": 2, "mean": MEANS, "waited_for": 0}, "trainers": [MEANS, MEANS]}
        yield {"event": "progress", "step": step, "epoch": 0, **told, "resident_rows": step}
    yield {"event": "evaluation", "step": steps, "epoch": 0, "auc": 0.765, **QUALITY, "seconds": 1.0}
    done = {"seconds": 0.5, "complete_after_s": 2.5, "bytes": 10**7, "base_step": None}
    yield {"event": "checkpoint", "step": steps, "directory": "run/checkpoints/step-00000030", **done}


def write_events(folder: Path, events: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def page_of(*folders: Path) -> Page:
    return Page(report_page(load_runs(folders), "today"))
