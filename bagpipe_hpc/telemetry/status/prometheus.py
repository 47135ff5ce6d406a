"""What a rank does, in the text format of Prometheus, for node exporter's textfile collector."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

_LONGEST_NAME = 100
"""Most bytes of a run's name in a file's name, which may have 255."""
_HELP = {
    "bagpipe_step": ("gauge", "Training steps done, as this rank counts them."),
    "bagpipe_value": ("gauge", "What the first trainer has measured last, such as the loss, by name."),
    "bagpipe_span_seconds_total": ("counter", "Seconds by what the rank did since it started."),
    "bagpipe_processor_seconds_total": ("counter", "Processor time of all threads of the rank."),
    "bagpipe_resident_memory_bytes": ("gauge", "Largest resident memory of the rank."),
    "bagpipe_status_timestamp_seconds": (
        "gauge",
        "When the rank told this last; an old one is of a rank that is gone.",
    ),
}
"""Type and meaning of each metric. Files of several ranks lie in one folder, where these must be the same."""


def prometheus_name(rank: str, output: Path) -> str:
    """Name of a rank's file in a folder of many runs, whose output folders may have the same name.

    Args:
        rank: its name.
        output: absolute path of the run's output folder.
    """
    run = os.fsdecode(os.fsencode(output.name)[:_LONGEST_NAME])
    return f"bagpipe-{run}-{crc32(os.fsencode(output)):08x}-{rank}.prom"


def prometheus_text(statuses: Sequence[Mapping[str, Any]], output: Path) -> str:
    r"""The metrics of ranks.

    Args:
        statuses: of each rank, the fields of a `Status`.
        output: absolute path of the run's output folder, which tells runs apart; bytes of it that are no text are
            written as Python writes them, `\udcff`.
    """
    lines: list[str] = []
    for name, (kind, meaning) in _HELP.items():
        samples = [
            f"{name}{_labels(_rank(status, output) | labels)} {_number(value)}"
            for status in statuses
            for labels, value in _samples(name, status)
            if isinstance(value, int | float)
        ]
        if samples:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples]
    return "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace").decode()


def _rank(status: Mapping[str, Any], output: Path) -> dict[str, str]:
    return {
        "run": output.name,
        "output": str(output),
        "role": status["role"],
        "rank": str(status["role_rank"]),
        "host": status["host"],
    }


def _samples(name: str, status: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Any]]:
    """Labels and values of a metric; a value that has no meaning may be None."""
    match name:
        case "bagpipe_value":
            yield from (({"name": key}, value) for key, value in status["values"].items())
        case "bagpipe_span_seconds_total":
            yield from (({"span": key}, value) for key, value in status["spans_s"].items())
        case "bagpipe_step":
            yield {}, status["step"]
        case "bagpipe_processor_seconds_total":
            yield {}, status["processor_s"]
        case "bagpipe_resident_memory_bytes":
            yield {}, status["resident_bytes"]
        case "bagpipe_status_timestamp_seconds":
            yield {}, status["time_s"]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """As Go reads it: NaN and +Inf are allowed there."""
    return repr(value) if value not in (float("inf"), float("-inf")) else ("+Inf" if value > 0 else "-Inf")
