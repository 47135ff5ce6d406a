"""What each rank of a run does now, from the status files that ranks write."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.progress import clock
from bagpipe_hpc.run.output.folder import CONFIG_NAME
from bagpipe_hpc.telemetry.status.status_file import ENDED, STATUS_FOLDER, read_statuses
from bagpipe_hpc.tools.text_table import aligned

_STALE_AFTER = 5
"""A rank is stale after this many intervals without a new file."""
_LEAST_STALE_S = 10.0
"""No rank is stale before this age: clocks of hosts and of the file system may differ by as much."""
_ROLES = ("oracle", "server", "trainer")
_ORACLE = _ROLES.index("oracle")
_HEADINGS = ("rank", "host", "process", "told", "step", "does", "most of the time", "processor", "memory")
_MOST_NAMED = 3
_LARGEST = 1e18
"""Larger numbers in a file, or other things in their place, are taken for 0: the file is damaged."""

Number = int | float


@dataclass(frozen=True)
class RankView:
    """A rank as its file shows it.

    Attributes:
        order: for sorting: number of the role, and rank in the role.
        cells: texts, in the order of the headings.
        is_stale: whether its file has grown old, although the file does not say that the rank has ended.
        is_ahead: whether its file lies in the future, by the clock of this host.
        has_ended: whether the rank has come to the end of its run.
        step: steps done; of the oracle, steps planned.
        values: what it has measured last.
    """

    order: tuple[int, int]
    cells: Sequence[str]
    is_stale: bool
    is_ahead: bool
    has_ended: bool
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class View:
    """All ranks of a run.

    Attributes:
        lines: a table, and remarks about the run.
        stale: names of ranks whose files have grown old.
    """

    lines: Sequence[str]
    stale: Sequence[str]


def view(output: Path, now_s: float | None = None) -> View:
    """Read the ranks' files once.

    Args:
        output: the run's output folder, or the folder of its logs.
        now_s: seconds since 1970; the present if not given.

    Raises:
        FileError: no rank reports there.
        OSError: the files may not be read.
    """
    now_s = time.time() if now_s is None else now_s
    ranks = [_rank(now_s - changed_s, status) for changed_s, status in read_statuses(output / STATUS_FOLDER)]
    if not ranks:
        _require_readable(output / STATUS_FOLDER)
        is_run = (output / CONFIG_NAME).is_file()
        why = "name the folder of train.output"
        if is_run:
            why = "its ranks have not begun, it is a run of one rank, which tells nothing, or train.status_every_s is 0"
        raise FileError(f"{output}: no rank tells there what it does: {why}")
    ranks.sort(key=lambda rank: rank.order)
    values: dict[str, float] = {}
    for rank in ranks:
        values |= rank.values
    done = max([rank.step for rank in ranks if rank.order[0] != _ORACLE], default=0)  # the oracle's are planned ones
    told = [f"step {done}", *(f"{name} {value:,.6g}" for name, value in values.items())]
    table = aligned([_HEADINGS, *(rank.cells for rank in ranks)], right=(2, 4, 8))
    stale = [rank.cells[0] for rank in ranks if rank.is_stale]
    warned = []
    if stale:
        all_of_them = all(rank.is_stale or rank.has_ended for rank in ranks)
        why = "; or, as it is all of them, this host's clock is ahead" if all_of_them else ""
        warned.append(f"stale: {', '.join(stale)}: stopped, killed, or cut off from this file system{why}")
    if ahead := [rank.cells[0] for rank in ranks if rank.is_ahead]:
        warned.append(
            f"clock ahead: {', '.join(ahead)}: told in this host's future, so nothing says whether they live; "
            "set the clocks of hosts and file system alike"
        )
    return View([f"{output}  {'  '.join(told)}", "", *table, *warned], stale)


def _require_readable(folder: Path) -> None:
    """Raise the system's error for a folder or file that may not be read, such as another user's."""
    with suppress(FileNotFoundError):
        for path in filter(Path.is_file, folder.iterdir()):
            path.open("rb").close()


def _rank(age_s: float, status: dict[str, Any]) -> RankView:
    role, number = str(status.get("role")), int(_number(status.get("role_rank")))
    doing = [str(name) for name in _list(status.get("doing"))]
    is_stale = age_s > max(_LEAST_STALE_S, _STALE_AFTER * _number(status.get("every_s"))) and doing != [ENDED]
    is_ahead = age_s < -_LEAST_STALE_S
    since_s = _number(status.get("since_s"))
    does = "; ".join(doing) + (f", for {clock(since_s)}" if since_s >= 1.0 else "")
    shares = {str(name): _number(share) for name, share in _dict(status.get("shares")).items()}
    most = sorted(shares.items(), key=lambda item: -item[1])[:_MOST_NAMED]
    step = int(_number(status.get("step")))
    cells = [
        f"{role} {number}",
        str(status.get("host")),
        f"{_number(status.get('process')):.0f}",
        f"{clock(max(0.0, age_s))} ago" + (" STALE" if is_stale else " CLOCK AHEAD" if is_ahead else ""),
        str(step) if step else "-",
        does,
        ", ".join(f"{name} {min(share, 1.0):.0%}" for name, share in most) or "-",  # a span counts where it ends
        clock(_number(status.get("processor_s"))),
        f"{_number(status.get('resident_bytes')) / 1e6:,.0f} MB",
    ]
    told = _dict(status.get("values"))
    values = {str(name): float(_number(value)) for name, value in told.items() if isinstance(value, int | float)}
    order = _ROLES.index(role) if role in _ROLES else len(_ROLES), number
    return RankView(order, cells, is_stale, is_ahead, doing == [ENDED], step, values)


def _number(value: object) -> Number:
    return value if isinstance(value, int | float) and abs(value) < _LARGEST else 0


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
