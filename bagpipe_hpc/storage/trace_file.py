"""Writes the timelines of all ranks as one file for chrome://tracing or ui.perfetto.dev."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import writing


def write_trace(path: Path, ranks: Iterable[list[dict[str, Any]]]) -> None:
    """Write trace events, whole or not at all.

    Args:
        path: the file; folders above it are made, an earlier file is replaced.
        ranks: the events of each rank, as `Trace.events` gives them.

    Raises:
        OutputError: it cannot be written.
    """
    content = {"displayTimeUnit": "ms", "traceEvents": [event for events in ranks for event in events]}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
