"""`metrics.jsonl`: a JSON object a line, in the order in which things happened."""

import json
from pathlib import Path
from typing import Any

from bagpipe_hpc.storage.atomic_write import atomic_write

METRICS_NAME = "metrics.jsonl"
SUMMARY_NAME = "summary.json"
_STEPS = 1 << 63
"""No run has so many."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The events of a metrics file, none if it is absent; a last line that was cut off in writing is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str) and _is_step(event.get("step")):
            events.append(event)
    return events


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < _STEPS


def cut_metrics(path: Path, step: int) -> None:
    """Keep what a run had told when it wrote the checkpoint of a step; it tells the rest once more.

    An evaluation at that step comes after the checkpoint.
    """
    kept = [
        event
        for event in read_metrics(path)
        if event["step"] < step or (event["step"] == step and event["event"] != "evaluation")
    ]
    with atomic_write(path) as partial:
        partial.write_text("".join(json.dumps(event) + "\n" for event in kept), encoding="utf-8")
