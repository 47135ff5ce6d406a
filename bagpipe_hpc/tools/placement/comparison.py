"""`bagpipe compare-placements`: what each placement gives servers to hold and to do, by the plans of a run.

Plans do not depend on where rows lie, so they are made once; each placement then says from which server each of their
rows is fetched, and to which it is put or added. Beside that stands the load that a placement's own model expects.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.placement.load import PlacementLoad, placement_load
from bagpipe_hpc.tools.placement.plan_rows import LookUpCounts, plan_rows
from bagpipe_hpc.tools.planned_runs import plain_run, require_samples
from bagpipe_hpc.tools.policy_comparison.contender import Contender, distinct, refusals
from bagpipe_hpc.tools.report import Report

_MEASURED = ("measured ms", "to mean")
_HEADINGS = (
    "placement",
    "largest MB",
    "to mean",
    "rows of the busiest",
    "to mean",
    "kB of the busiest",
    "kB of all",
    "slow look-ups",
    "model ms",
    "to mean",
    *_MEASURED,
)


def compare_placements(
    path: Path,
    overrides: Sequence[str],
    placements: Sequence[str],
    *,
    servers: Sequence[int],
    trainers: int,
    batches: int | None,
    measure: bool,
) -> Report:
    """Compare every placement with every number of servers.

    Args:
        path: the configuration, a TOML file.
        overrides: `section.field=value`, for all placements.
        placements: names, each maybe with settings of its own behind it.
        servers: numbers of servers.
        trainers: number of trainers.
        batches: batches to plan; None for all.
        measure: whether to time how long each server takes, on this machine.

    Raises:
        BagpipeError: the configuration asks for something impossible, or every placement refuses it. If only some
            refuse these tables or servers, each has a line in the table instead.
    """
    contenders = distinct(
        [Contender.parse(text, "tables.placement", "--placements") for text in placements], "--placements"
    )
    for contender in contenders:
        _require_own(contender)
    config = load_config(path, overrides)
    require_samples([trainers], config)
    run = plain_run(config)
    look_ups = LookUpCounts(run)
    moved = plan_rows(run, trainers, batches, look_ups)
    report = Report("compare-placements")
    cells: list[dict[str, Any]] = []
    report.figures |= {"config": str(path), "overrides": list(overrides), "cells": cells}
    for number in servers:
        rows = []
        for contender in contenders:
            cell: dict[str, Any] = {"placement": contender.label, "servers": number, "refusal": None, "load": None}
            cells.append(cell)
            try:
                own = load_config(path, contender.settings(overrides))
                load = placement_load(_with(run, own), number, moved, look_ups, measure=measure)
            except BagpipeError as error:
                cell["refusal"] = str(error)
                continue
            cell["load"] = asdict(load)
            rows.append(_row(contender.label, load))
        if rows:
            ranks = f"{counted(number, 'server')}, {counted(trainers, 'trainer')}"
            title = f"{ranks}: what servers hold, and move for a batch"
            report.table(title, _HEADINGS if measure else _HEADINGS[: -len(_MEASURED)], rows)
    refused = refusals([(cell["placement"], _words(cell), cell["refusal"] or "") for cell in cells])
    if not any(cell["load"] for cell in cells):
        raise ConfigError("there is nothing to compare: " + "\n  ".join(refused))
    report.lines += ["", *refused]
    return report


def _words(cell: dict[str, Any]) -> str:
    return f"{cell['placement']}, {counted(cell['servers'], 'server')}"


def _require_own(contender: Contender) -> None:
    """Check that a placement's own settings are those of tables: plans are made once, with the common settings.

    Raises:
        ConfigError: a setting is not, and would have no effect.
    """
    if other := next((one for one in contender.overrides if not one.startswith("tables.")), None):
        raise ConfigError(
            f"--placements {contender.label!r}: {other}: plans are made once, for all placements, so one has "
            "settings of tables alone; write it behind CONFIG.toml, for all"
        )


def _with(run: Run, config: Config) -> Run:
    """The run with the settings of another placement."""
    return replace(run, config=replace(run.config, tables=config.tables))


def _row(label: str, load: PlacementLoad) -> list[str]:
    largest_mb = max(load.held_bytes) / 1e6
    row = [
        label,
        f"{largest_mb:,.1f}" if largest_mb >= 10 else f"{largest_mb:.3g}",
        f"{_to_mean(load.held_bytes):.2f}",
        f"{max(load.rows):,.1f}",
        f"{_to_mean(load.rows):.2f}",
        f"{max(load.bytes) / 1e3:,.1f}",
        f"{sum(load.bytes) / 1e3:,.1f}",
    ]
    row += [
        "-" if load.slow_look_ups is None else f"{load.slow_look_ups:.2%}",
        f"{max(load.expected):.3f}" if load.expected and load.expects_ms else "-",
        f"{_to_mean(load.expected):.2f}" if load.expected else "-",
    ]
    if load.measured_ms is None:
        return row
    slowest_ms, mean_ms = load.measured_ms
    return [*row, f"{slowest_ms:.3f}", f"{slowest_ms / mean_ms:.2f}" if mean_ms else "-"]


def _to_mean(values: Sequence[float]) -> float:
    """Ratio of the largest value to the mean."""
    return max(values) * len(values) / sum(values) if sum(values) else 1.0
