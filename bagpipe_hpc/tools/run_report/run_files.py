"""Reads the output folder of a run; files may be missing, since a run may go on or have been killed."""

import json
import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import BagpipeError, FileError, read_small
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.output.folder import CONFIG_NAME, LOGS_NAME, RESOURCES_NAME
from bagpipe_hpc.storage.run_lock import DEAD_AFTER_S, LOCK_NAME
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME, Metrics, each_event

_MOST_JSON_BYTES = 64 << 20
_MOST_LOG_BYTES = 1 << 20
"""How much is read of the end of each log."""
_OF_TRAINERS = ("trainers", "of_trainers")
_LARGEST = 1e300
"""Larger numbers are taken for damage; sums and differences of numbers up to this stay finite."""
_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ (WARNING|ERROR|CRITICAL) [\w.]+: (.*)")

Event = dict[str, Any]


class Fault(NamedTuple):
    """A line of a log with a warning or a failure."""

    time: str
    rank: str
    level: str
    message: str


class RowBytes(NamedTuple):
    """Bytes of a row: at servers, with its optimizer's state; of a copy; of a gradient between trainers."""

    record: int
    copy: int
    gradient: int


@dataclass(frozen=True)
class RunFiles:
    """A run as its files describe it.

    Attributes:
        name: tells it apart from the other runs of a page.
        folder: its output folder.
        state: whether it has finished, in words.
        settings: `config.toml` as `section.field` and value.
        events: `metrics.jsonl`.
        summary: `summary.json`; empty before the run's end.
        ranks: `resources.json`, by rank; empty before the run's end.
        row_bytes: sizes of a row; None where tables have several widths, or the settings cannot be read.
        faults: warnings and failures in the logs.
        lacking: which files are missing, and what the page cannot show for that.
    """

    name: str
    folder: Path
    state: str
    settings: dict[str, Any]
    events: Sequence[Event]
    summary: dict[str, Any]
    ranks: Sequence[dict[str, Any]]
    row_bytes: RowBytes | None
    faults: Sequence[Fault]
    lacking: Sequence[str]

    def of(self, event: str) -> list[Event]:
        """The events of one kind."""
        return [one for one in self.events if one["event"] == event]


def load_runs(folders: Sequence[Path]) -> list[RunFiles]:
    """Read what the output folders of runs hold.

    Raises:
        FileError: a folder is not that of a run, or is given twice.
    """
    known: set[Path] = set()
    for folder in folders:
        if folder.resolve() in known:
            raise FileError(f"{folder}: is given twice; name each run once")
        known.add(folder.resolve())
        if not any((folder / name).is_file() for name in (METRICS_NAME, CONFIG_NAME)):
            raise FileError(
                f"{folder}: is no output folder of a run: it has neither {METRICS_NAME} nor {CONFIG_NAME}; name the "
                "folder that train.output named"
            )
    return [_load(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def number(value: object) -> float | None:
    """A number from a file; None for anything else, and for a number too large for a run to measure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the folders' paths that tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-length:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _load(folder: Path, name: str) -> RunFiles:
    lacking: list[str] = []
    summary = _json(folder / SUMMARY_NAME, lacking, "the run has not come to its end: load of servers, cache's size")
    of_ranks = [] if summary.get("servers") == 0 else lacking  # the one rank of a reference writes none
    ranks = _json(folder / RESOURCES_NAME, of_ranks, "times of oracle and servers, memory, processor time").get("ranks")
    metrics = _metrics(folder / METRICS_NAME) if (folder / METRICS_NAME).is_file() else Metrics([], [])
    events = metrics.events
    if damage := metrics.tell_damage():
        lacking.append(f"{METRICS_NAME}: {damage}")
    if not events:
        lacking.append(f"{METRICS_NAME}: has no event yet: all that changes over the run")
    settings = _settings(folder / CONFIG_NAME, lacking)
    row_bytes = _row_bytes(folder / CONFIG_NAME, lacking) if settings else None
    if not (folder / LOGS_NAME).is_dir():
        lacking.append(f"{LOGS_NAME}: is not there: warnings and failures")
    return RunFiles(
        name,
        folder,
        _state(folder, summary, events),
        settings,
        events,
        summary,
        [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else [],
        row_bytes,
        sorted(_faults(folder / LOGS_NAME)),
        lacking,
    )


def _metrics(path: Path) -> Metrics:
    """What a metrics file holds; values of single trainers are kept only for the last interval.

    They are most of a line, and only the last ones are shown, if the run has not ended.
    """
    events: list[Event] = []
    damaged: list[int] = []
    last: Event = {}
    for event in each_event(path, damaged):
        if event["event"] == "progress":
            for name in _OF_TRAINERS:
                last.pop(name, None)
            last = event
        events.append(event)
    return Metrics(events, damaged)


def _state(folder: Path, summary: dict[str, Any], events: Sequence[Event]) -> str:
    if summary:
        return "stopped early" if summary.get("stopped_early") else "finished"
    try:
        is_held = time.time() - (folder / LOCK_NAME).stat().st_mtime < DEAD_AFTER_S
    except OSError:
        is_held = False
    if is_held:
        return "going on"
    return f"stopped or killed after step {events[-1]['step']}" if events else "not begun, or killed before it told"


def _json(path: Path, lacking: list[str], what: str) -> dict[str, Any]:
    try:
        content = json.loads(_text_of(path, _MOST_JSON_BYTES))
    except FileNotFoundError:
        lacking.append(f"{path.name}: is not there: {what}")
        return {}
    except (OSError, ValueError, RecursionError, FileError) as error:
        lacking.append(f"{path.name}: cannot be read ({error}): {what}")
        return {}
    if not isinstance(content, dict):
        lacking.append(f"{path.name}: is not what a run writes: {what}")
        return {}
    return content


def _text_of(path: Path, most_bytes: int) -> str:
    """The text of a run's file; a pipe is refused, since reading from one would never end."""
    if path.exists() and not path.is_file():
        raise FileError(f"{path}: is no file")
    return read_small(path, most_bytes)


def _settings(path: Path, lacking: list[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(_text_of(path, _MOST_LOG_BYTES))
    except (OSError, ValueError, RecursionError, FileError) as error:
        lacking.append(f"{path.name}: cannot be read ({error}): settings, bytes")
        return {}
    return {
        f"{section}.{field}": value
        for section, fields in document.items()
        if isinstance(fields, dict)
        for field, value in fields.items()
    }


def _row_bytes(path: Path, lacking: list[str]) -> RowBytes | None:
    try:
        config = load_config(path)
        record = RowRecord.of(config)
    except BagpipeError as error:  # of another version, or with a class that is not at hand
        lacking.append(f"bytes: {error}")
        return None
    widths = set(config.model.embedding_dim_of.values()) - {config.model.embedding_dim}
    if widths:
        lacking.append(
            "bytes by class: tables have several widths (model.embedding_dim_of), and rows are counted alone"
        )
        return None
    width = record.embedding_dim
    return RowBytes(record.bytes, 4 * width, (4 if config.train.row_sums == "float32" else 2) * width)


def _faults(logs: Path) -> Iterator[Fault]:
    for path in filter(Path.is_file, sorted(logs.glob("*.log"))):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _MOST_LOG_BYTES))
                lines = file.read(_MOST_LOG_BYTES).decode("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if found := _LOG_LINE.match(line):
                yield Fault(found[1], path.stem, found[2].lower(), found[3])
