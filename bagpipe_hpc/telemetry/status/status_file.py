"""The files in which ranks say what they do, as others find them. Standard library only."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATUS_FOLDER = "status"
_SHOWN_RANKS = 8
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


def who_is_silent(folder: Path, waited_s: float) -> str:
    """Which ranks may be the reason for a wait: those that have not written for half of it, and for two intervals.

    The newest file says what time it is, for clocks of hosts differ.

    Args:
        folder: of the files.
        waited_s: how long it has lasted.

    Returns:
        The end of a message; empty where no rank tells anything.
    """
    told = [(changed_s, status) for changed_s, status in read_statuses(folder) if status.get("doing") != [ENDED]]
    if not told:
        return ""
    now_s = max(changed_s for changed_s, _ in told)
    silent = [
        f"{status.get('role')} {status.get('role_rank')} on {status.get('host')} for {now_s - changed_s:.0f} s"
        for changed_s, status in told
        if now_s - changed_s > max(waited_s / 2, 2 * _interval_s(status))
    ]
    if not silent:
        return f"; all {len(told)} ranks still tell what they do: it is the network, or one is busy (`bagpipe top`)"
    more = [f"{len(silent) - _SHOWN_RANKS} more"] if len(silent) > _SHOWN_RANKS else []
    return f"; of {len(told)} ranks these have been silent: {', '.join([*silent[:_SHOWN_RANKS], *more])}"


def _interval_s(status: dict[str, Any]) -> float:
    """Seconds between files, as a rank says it."""
    every_s = status.get("every_s")
    return every_s if isinstance(every_s, int | float) else 0.0
