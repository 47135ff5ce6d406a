"""The summary of a run in words: where a step of each trainer went, which evaluation was best, why training ended."""

from pathlib import Path
from typing import Any

from bagpipe_hpc.terminal import counted

_COLUMNS = {
    "total_ms": "step ms",
    "compute_ms": "compute ms",
    "wait_rows_ms": "wait rows ms",
    "wait_reductions_ms": "wait reductions ms",
    "rows_fetched": "fetched",
    "rows_written_back": "written back",
    "reduced_now": "now",
    "reduced_later": "later",
    "private": "private",
    "copied": "copied",
    "sent_home": "sent home",
    "relayed": "relayed",
    "over_hosts": "over hosts",
}
_OF_HOMES = ("copied", "sent_home", "relayed", "over_hosts")
"""Columns that are left out where they are all 0, as where rows are replicated, travel directly, or have one home."""
_MOST_LINES = 16
"""Most trainers for which each has a line."""


def summary_lines(trainers: list[dict[str, float]], width: int = 0) -> list[str]:
    """A table of means per step, one line a trainer; in several parts where all columns are wider than `width`.

    Of very many trainers it has their mean, and the two that waited least and most for sums over all: the one that
    waited least is the one that the others waited for.
    """
    told = _few(trainers)
    cells: list[list[str]] = []
    for key, title in _COLUMNS.items():
        if key in _OF_HOMES and not any(means[key] for means in trainers):
            continue
        column = [title, *(f"{means[key]:.{2 if key.endswith('_ms') else 0}f}" for means in told.values())]
        cells.append([cell.rjust(max(9, len(title))) for cell in column])
    longest = max(map(len, told))
    heads = ["per step".ljust(longest), *(name.ljust(longest) for name in told)]
    lines: list[str] = []
    part = [*heads]
    for column in cells:
        if width and part != heads and len(part[0]) + 2 + len(column[0]) >= width:
            lines += part
            part = [*heads]
        between = "" if part == heads else "  "
        part = [line + between + cell for line, cell in zip(part, column, strict=True)]
    return lines + part


def _few(trainers: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Means of trainers by what the table calls them."""
    if len(trainers) <= _MOST_LINES:
        return {f"trainer {number:<6}": means for number, means in enumerate(trainers)}
    mean = {key: sum(means[key] for means in trainers) / len(trainers) for key in trainers[0]}
    by_wait = sorted(range(len(trainers)), key=lambda number: trainers[number]["wait_reductions_ms"])
    return {
        f"mean of {len(trainers)} trainers": mean,
        f"trainer {by_wait[0]}, waited for": trainers[by_wait[0]],
        f"trainer {by_wait[-1]}, waiting most": trainers[by_wait[-1]],
    }


def judgement(details: dict[str, Any], output: Path) -> list[str]:
    """The best evaluation of several, and why training ended early, in words."""
    lines = []
    best, early = details.get("best"), details.get("stopped_early")
    if best:
        where = f": {best['directory']}" if best["directory"] else f", of which no checkpoint is in {output}"
        lines.append(f"best {_measure_name(best['measure'])} {best['value']:.5f} after step {best['step']}{where}")
    if best and early:
        without = counted(early["evaluations_without_better"], "evaluation")
        which = f"{without} without a better {_measure_name(best['measure'])}"
        lines.append(f"stopped early after step {early['step']}: {which}")
    return lines


def _measure_name(measure: str) -> str:
    return {"auc": "AUC", "log_loss": "log loss", "group_auc": "AUC by group"}[measure]
