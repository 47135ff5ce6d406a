"""The files in which ranks say what they do, as others find them. Standard library only."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATUS_FOLDER = "status"
ENDED = "ended"
"""What a rank does that has come to the end of its run."""


def read_statuses(folder: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """The time of change and the content of each whole status file in a folder; other files are passed over."""
    for path in filter(Path.is_file, sorted(folder.glob("*-*.json"))):
        try:
            changed_s = path.stat().st_mtime
            status = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(status, dict):
            yield changed_s, status
