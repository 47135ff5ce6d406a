"""`bagpipe compare-policies`: every policy under every condition, in one table (docs/policy-comparison.md)."""

import logging
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import BagpipeError, CapacityError, ConfigError
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.planned_runs import plain_run, require_samples, run_decisions
from bagpipe_hpc.tools.policy_comparison.contender import Cell, Contender, cells, refusals
from bagpipe_hpc.tools.policy_comparison.plot import plot_svg
from bagpipe_hpc.tools.policy_comparison.traffic import MOVED, Traffic, measure_traffic
from bagpipe_hpc.tools.policy_comparison.training import Trained, launch_command, train
from bagpipe_hpc.tools.report import Report

log = logging.getLogger(__name__)

_LINEAR = "torch"
"""What multiplies matrices in all runs. `auto` would time the choices anew in each run, and another choice gives other
bits."""
_AS_PLANNED = " (as planned)"
"""Follows the name of a policy whose runs move other rows than are shown."""
_ROUNDING = 1e-9
"""Tolerance: counts of a run and of its plans are means of the same whole numbers, added up in different orders."""


@dataclass(frozen=True)
class Found:
    """What is known of a cell.

    Attributes:
        cell: the policy and its conditions.
        traffic: what its plans move; None where the policy refuses these conditions.
        refusal: why it refuses.
        decisions: what its runs decide as they train, so that they move other rows than were planned.
        trained: its runs, by seed; empty where nothing was to be trained.
    """

    cell: Cell
    traffic: Traffic | None
    refusal: str = ""
    decisions: tuple[str, ...] = ()
    trained: tuple[Trained, ...] = ()

    @property
    def name(self) -> str:
        """The policy's name, with a mark where runs move other rows."""
        return self.cell.contender.label + (_AS_PLANNED if self.decisions else "")


@dataclass(frozen=True)
class Runs:
    """How policies are trained.

    Attributes:
        folder: where each run gets its output folder.
        launch: the command that starts the ranks of a run (`launch_command`).
        seeds: runs of each policy, with the seeds from 1.
    """

    folder: Path
    launch: str
    seeds: int


def compare_policies(
    path: Path,
    overrides: Sequence[str],
    policies: Sequence[str],
    *,
    trainers: Sequence[int],
    cache_percents: Sequence[float],
    batches: int,
    runs: Runs | None,
    plot: Path | None,
) -> Report:
    """Plan, and train if wanted, every combination.

    Args:
        path: the configuration, a TOML file.
        overrides: `section.field=value`, for all policies.
        policies: names, each maybe with settings of its own behind it.
        trainers: numbers of trainers.
        cache_percents: slots of a trainer's cache, in percent of the tables' rows; 0 for as many as a policy wants.
        batches: batches to plan of each segment; 0 for all.
        runs: how to train; None to plan only.
        plot: file of a drawing of what is moved; None for none.

    Raises:
        ConfigError: the arguments or the configuration ask for something impossible. A policy that refuses some
            conditions has a line in the table instead, unless nothing else is left.
        BagpipeError: a run ended with an error.
    """
    contenders = [Contender.parse(text) for text in policies]
    wanted = cells(contenders, trainers, cache_percents)
    config = load_config(path, overrides)
    require_samples(trainers, config)
    if runs is not None:
        launch_command(runs.launch, 1, 1)  # raises what is wrong with it before hours of work
    if not config.data.path:
        raise ConfigError("data.path is empty: name the shards on which policies are compared, as in data.path=shards")
    total_rows = sum(load_manifest(Path(config.data.path)).table_rows)
    shared = _Shared(path, overrides, total_rows, batches, runs)
    found = []
    for number, cell in enumerate(wanted):
        log.info("%d of %d: %s", number + 1, len(wanted), cell)
        found.append(_look_at(cell, shared))
    if all(one.refusal for one in found):
        raise ConfigError("there is nothing to compare: " + "\n  ".join(_remarks(found)))
    report = Report("compare-policies")
    report.figures |= {"config": str(path), "overrides": list(overrides), "cells": _figures(found)}
    for title, rows in _tables(found):
        report.table(title, _headings(trained=runs is not None), rows)
    report.lines += ["", *_remarks(found)]
    if plot:
        report.files[plot] = plot_svg(_panels(found))
    return report


@dataclass(frozen=True)
class _Shared:
    """What all cells have in common: arguments of `compare_policies`, and the rows of all tables."""

    path: Path
    overrides: Sequence[str]
    total_rows: int
    batches: int
    runs: Runs | None


def _look_at(cell: Cell, shared: _Shared) -> Found:
    try:
        config = cell.config(shared.path, shared.overrides, shared.total_rows)
        run = plain_run(config)
        traffic = measure_traffic(run, cell.trainers, shared.batches)
    except (CapacityError, ConfigError) as error:
        return Found(cell, None, str(error))
    planned = Found(cell, traffic, decisions=tuple(run_decisions(run)))
    return planned if shared.runs is None else replace(planned, trained=_train(planned, run, shared, shared.runs))


def _train(planned: Found, run: Run, shared: _Shared, runs: Runs) -> tuple[Trained, ...]:
    cell = planned.cell
    launch = launch_command(runs.launch, run.config.roles.servers or 1, cell.trainers)
    fixed = [f"roles.servers={run.config.roles.servers or 1}", "roles.placement=rank_order"]
    if run.config.kernels.linear == "auto":
        fixed.append(f"kernels.linear={_LINEAR}")
    if run.config.cache.sharing == "auto":  # on GPUs a run would choose another way than was planned
        fixed.append(f"cache.sharing={run.policy(cell.trainers).whole.facts.sharing}")
    trained = []
    for seed in range(1, runs.seeds + 1):
        folder = runs.folder / cell.folder(seed)
        anew = ('train.resume=""', "train.overwrite=true")  # means are those of a whole run
        of_run = (*fixed, f"train.seed={seed}", f"train.output={folder}", *anew)
        overrides = cell.overrides(shared.overrides, shared.total_rows, *of_run)
        trained.append(train(launch, shared.path, overrides, folder))
        if seed == run.config.train.seed and planned.traffic and not planned.decisions:
            _require_same(cell, trained[-1], planned.traffic)
    return tuple(trained)


def _require_same(cell: Cell, trained: Trained, traffic: Traffic) -> None:
    """Check that a run moved what its plans say; only a run with the planned seed can be compared.

    Raises:
        BagpipeError: it moved other numbers of rows.
    """
    written = traffic.rows["written"] + traffic.rows["added"]
    planned = {"fetched": traffic.rows["fetched"], "written": written}
    for kind, value in planned.items():
        if abs(trained.moved[kind] - value) > _ROUNDING * max(1.0, value):
            raise BagpipeError(f"{cell}: {trained.moved[kind]} rows {kind} a batch in the run, {value} in its plans")


def _remarks(found: Sequence[Found]) -> list[str]:
    """Remarks for which the tables have no room."""
    remarks = refusals([(one.cell.contender.label, str(one.cell), one.refusal) for one in found])
    decisions = {one.name: one.decisions for one in found if one.decisions}  # told once, not for each condition
    remarks += [f"{name}: {decision}" for name, told in decisions.items() for decision in told]
    for one in (one for one in found if one.decisions and one.trained):
        fetched, written = (
            _spread([run.moved[kind] for run in one.trained], "{:,.1f}") for kind in ("fetched", "written")
        )
        remarks.append(f"{one.cell}: its runs fetched {fetched} and wrote back {written} rows a trainer and batch")
    return remarks


def _headings(*, trained: bool) -> list[str]:
    planned = [
        "policy",
        *MOVED.values(),
        "kB",
        "hits",
        "L",
        "cache",
        "plan kB",
        "planner ms",
    ]
    return [*planned, "rows wait", "sums wait", "samples/s", "AUC", "log loss"] if trained else planned


def _tables(found: Sequence[Found]) -> list[tuple[str, list[list[str]]]]:
    """A table for each condition."""
    tables = []
    for (trainers, percent), group in groupby(found, key=lambda one: (one.cell.trainers, one.cell.cache_percent)):
        cache = f"{percent:g} % of the rows in each cache" if percent else "caches as large as they want"
        rows = [_row(one, one.traffic) for one in group if one.traffic]
        if rows:
            tables.append((f"T = {trainers}, {cache}: rows a trainer and batch", rows))
    return tables


def _panels(found: Sequence[Found]) -> dict[str, list[tuple[str, Traffic]]]:
    """What is drawn: a panel for each number of trainers and cache."""
    panels: dict[str, list[tuple[str, Traffic]]] = {}
    for one in found:
        if one.traffic:
            percent = one.cell.cache_percent
            cache = f"cache {percent:g} % of the rows" if percent else "caches as large as they want"
            panels.setdefault(f"T = {one.cell.trainers}, {cache}", []).append((one.name, one.traffic))
    return panels


def _row(one: Found, traffic: Traffic) -> list[str]:
    row = [
        one.name,
        *(f"{traffic.rows[kind]:,.1f}" for kind in MOVED),
        f"{traffic.total_bytes / 1e3:,.1f}",
        f"{traffic.hit_rate:.1%}",
        str(traffic.window),
        f"{traffic.cache_rows:,}",
        f"{traffic.plan_bytes / 1e3:,.1f}",
        f"{traffic.planner_ms:.2f}",
    ]
    if not one.trained:
        return row
    return [
        *row,
        _spread([run.rows_wait for run in one.trained], "{:.1%}"),
        _spread([run.sums_wait for run in one.trained], "{:.1%}"),
        _spread([run.samples_per_s for run in one.trained], "{:,.0f}"),
        _spread([run.auc for run in one.trained], "{:.4f}"),
        _spread([run.log_loss for run in one.trained], "{:.4f}"),
    ]


def _spread(values: Sequence[float | None], form: str) -> str:
    """Median, and the lowest and highest where there are several."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    median = form.format(statistics.median(known))
    if len(known) == 1:
        return median
    return f"{median} ({form.format(min(known))} to {form.format(max(known))})"


def _figures(found: Sequence[Found]) -> list[dict[str, Any]]:
    return [
        {
            "policy": one.cell.contender.label,
            "trainers": one.cell.trainers,
            "cache_percent": one.cell.cache_percent,
            "refusal": one.refusal or None,
            "decided_in_runs": list(one.decisions),
            "traffic": asdict(one.traffic) if one.traffic else None,
            "trained": [asdict(run) for run in one.trained],
        }
        for one in found
    ]
