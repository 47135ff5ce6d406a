"""`python -m benchmarks planner`: samples per second and memory of the oracle's planners, native beside NumPy.

Whole plans are made: window, slots, translated look-ups, write-backs. The look-ups are drawn before the clock starts,
over Criteo Kaggle's table sizes or multiples of them, and every planner is in the middle of a long segment when it is
timed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.config.doors import NoSettings
from bagpipe_hpc.config.schema import KernelsConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.planner import PlannerSize
from bagpipe_hpc.planning.policy import RunFacts
from bagpipe_hpc.rows.partition import table_offsets
from bagpipe_hpc.tools.report import Report
from benchmarks.kaggle.rows import TABLE_ROWS, draw_bags
from benchmarks.planner.pace import (
    Batches,
    Pace,
    PlanFigures,
    SteadyPlanner,
    compare_paces,
    describe_plans,
    ring_batches,
    window_of,
)

ZIPF = 1.05
_BATCHES = (2048, 8192, 16384, 65536)
_WINDOWS = (1, 10, 50, 200)
_ROWS = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_THREADS = (1, 2, 4, 8, 16, 32)
_LONGEST = (1, 10, 100)
_TRAINERS = (2, 8, 64)
_TRAINERS_OF_THREADS = (2, 64, 256)
_SWEPT_WINDOW = 50
"""Window of the sweeps over other things: their batches fit in memory."""
_THREADS_WINDOW = 10
"""Of the sweep over threads, which has a dozen planners in memory at once."""
_MOST_DENSE_ROWS = 100_000_000
"""An array over more rows takes gigabytes."""


@dataclass(frozen=True)
class Setting:
    """A planner and what it plans.

    Attributes:
        table_rows: rows of each table.
        batch_size: samples of a batch.
        lookahead: window L.
        trainers: trainers T.
        is_native: the native planner, not the NumPy one.
        state: `kernels.planner_state`.
        threads: threads of the native planner.
        longest: rows of the longest bags; 0 for one-hot features.
        sharing: `cache.sharing`.
    """

    table_rows: Sequence[int]
    batch_size: int
    lookahead: int
    trainers: int
    is_native: bool = True
    state: str = "dense"
    threads: int = 1
    longest: int = 0
    sharing: str = "replicated"

    @property
    def mean_length(self) -> float:
        """Rows of a bag."""
        return (1 + self.longest) / 2 if self.longest else 1.0

    @property
    def name(self) -> str:
        """For the tables."""
        sharing = "" if self.sharing == "replicated" else f", {self.sharing}"
        if not self.is_native:
            return f"NumPy{sharing}"
        bags = f", bags of 1 to {self.longest}" if self.longest else ""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"native, {self.state}{sharing}{bags}{threads}"

    def start(self, ring: Batches) -> SteadyPlanner:
        """A planner with a full window."""
        offsets = table_offsets(tuple(self.table_rows))
        backend = "native" if self.is_native else "reference"
        kernels = KernelsConfig(backend=backend, planner_state=self.state, planner_threads=self.threads)
        look_ups = (self.mean_length,) * len(self.table_rows) if self.longest else ()
        facts = RunFacts(offsets, self.trainers, self.batch_size, kernels=kernels, mean_look_ups=look_ups)
        policy = LookaheadPolicy(NoSettings(), replace(facts, sharing=self.sharing))
        return SteadyPlanner(policy.planner(window_of(self.lookahead)), ring)


@dataclass(frozen=True)
class Result:
    """What was measured of a setting."""

    setting: Setting
    pace: Pace
    size: PlannerSize
    plans: PlanFigures

    def figures(self) -> dict[str, Any]:
        """For the JSON line."""
        setting, size, rows = self.setting, self.size, sum(self.setting.table_rows)
        look_ups = self.plans.look_ups
        return {
            "planner": setting.name,
            "rows": rows,
            "batch_size": setting.batch_size,
            "lookahead_batches": setting.lookahead,
            "trainers": setting.trainers,
            "threads": setting.threads,
            **self.pace.figures(),
            "look_ups": round(look_ups),
            "look_ups_per_s": round(self.pace.figures()["samples_per_s"] * look_ups / setting.batch_size),
            "state_bytes": size.state_bytes,
            "state_bytes_per_row": round(size.state_bytes / rows, 3),
            "window_bytes": size.window_bytes,
            "window_bytes_per_look_up": round(size.window_bytes / (setting.lookahead * look_ups), 2),
            "cache_rows": size.shared_slots + size.private_slots,
            "unique_rows": round(self.plans.unique_rows),
            "fetched_rows": round(self.plans.fetched_rows),
            "plan_bytes": round(self.plans.plan_bytes),
        }


def run(arguments: argparse.Namespace) -> Report:
    """Measure; see `command` for the arguments.

    Raises:
        ConfigError: the native planner was not built.
    """
    if not shared_library.is_built("planner"):
        raise ConfigError("benchmark planner: the native planner was not built; run `make setup`")
    if arguments.quick:
        arguments.batch_size, arguments.lookahead = min(arguments.batch_size, 8192), min(arguments.lookahead, 20)
    sizes = (arguments.batch_size, arguments.lookahead, arguments.trainers)
    base = Setting(TABLE_ROWS, *sizes, sharing=arguments.sharing)
    keep_all_freed_memory()  # as the oracle does
    report = Report("planner")
    steps = min(arguments.steps, 10) if arguments.quick else arguments.steps
    report.figures |= {"zipf": ZIPF, "runs": arguments.runs, "steps": steps}

    def measure(title: str, settings: Sequence[Setting]) -> list[dict[str, Any]]:
        results = [result.figures() for result in measure_settings(settings, steps, arguments.runs)]
        report.table(title, HEADINGS, [table_row(figures) for figures in results])
        return results

    report.figures["planners"] = measure(
        f"{sum(TABLE_ROWS):,} rows, L = {base.lookahead}, batch {base.batch_size:,}, {base.trainers} trainers",
        [base, replace(base, is_native=False), replace(base, state="sparse")],
    )
    report.figures["sweeps"] = {
        sweep: measure(f"sweep over {sweep}", swept_settings(base, sweep, quick=arguments.quick))
        for sweep in arguments.sweep
    }
    return report


def swept_settings(base: Setting, sweep: str, *, quick: bool) -> list[Setting]:
    """The settings of a sweep; a look takes the ends of each."""

    def values(full: Sequence[int]) -> Sequence[int]:
        return (full[0], full[-1]) if quick else full

    swept = replace(base, lookahead=min(base.lookahead, _SWEPT_WINDOW))
    if sweep == "batch":
        sizes = tuple(dict.fromkeys((2048, base.batch_size))) if quick else _BATCHES
        return [replace(swept, batch_size=size, is_native=native) for size in sizes for native in (True, False)]
    if sweep == "lookahead":
        windows = tuple(dict.fromkeys((1, base.lookahead))) if quick else _WINDOWS
        return [replace(base, lookahead=window, is_native=native) for window in windows for native in (True, False)]
    if sweep == "threads":
        narrow = replace(base, lookahead=min(base.lookahead, _THREADS_WINDOW))
        return [
            replace(narrow, trainers=trainers, sharing=sharing, threads=threads)
            for trainers in values(_TRAINERS_OF_THREADS)
            for sharing in ("replicated", "home")
            for threads in values(_THREADS)
        ]
    if sweep == "trainers":
        homes = replace(swept, sharing="home")
        kinds = (replace(swept, sharing="replicated"), homes, replace(homes, is_native=False))
        return [replace(kind, trainers=trainers) for trainers in values(_TRAINERS) for kind in kinds]
    if sweep == "bags":
        ragged = [replace(swept, longest=longest) for longest in _LONGEST]
        return [swept, *(replace(one, batch_size=max(1, int(base.batch_size / one.mean_length))) for one in ragged)]
    settings = [replace(swept, table_rows=scaled_tables(rows), state="sparse") for rows in values(_ROWS)]
    dense = [replace(setting, state="dense") for setting in settings if sum(setting.table_rows) <= _MOST_DENSE_ROWS]
    return [*dense, *settings]


def scaled_tables(total_rows: int) -> tuple[int, ...]:
    """Criteo Kaggle's tables, each a multiple of its size, with about so many rows together."""
    factor = total_rows / sum(TABLE_ROWS)
    return tuple(max(1, round(rows * factor)) for rows in TABLE_ROWS)


def measure_settings(settings: Sequence[Setting], steps: int, runs: int) -> list[Result]:
    """Measure settings, those that have their look-ups in common beside each other."""
    results = {}
    by_look_ups: dict[tuple[Sequence[int], int, int, int, int], list[Setting]] = {}
    for setting in settings:
        look_ups = (setting.table_rows, setting.batch_size, setting.lookahead, setting.longest, setting.trainers)
        by_look_ups.setdefault(look_ups, []).append(setting)
    for (table_rows, batch_size, lookahead, longest, _), members in by_look_ups.items():
        ring = draw_bags(ring_batches(lookahead), batch_size, longest, ZIPF, seed=1, table_rows=table_rows)
        planners = {setting.name: setting.start(ring) for setting in members}
        paces = compare_paces(planners, batch_size, steps, runs)
        for setting in members:
            planner = planners.pop(setting.name)
            results[setting] = Result(setting, paces[setting.name], planner.size, describe_plans(planner))
    return [results[setting] for setting in settings]


HEADINGS = (
    "planner",
    "rows",
    "batch",
    "L",
    "T",
    "samples/s",
    "M look-ups/s",
    "a processor second",
    "ms a batch",
    "processor ms",
    "critical path ms",
    "state B a row",
    "state MB",
    "window MB",
    "plan MB",
    "unique rows",
    "fetched",
)


def table_row(figures: dict[str, Any]) -> list[str]:
    """The cells of a result."""
    return [
        figures["planner"],
        f"{figures['rows']:,}",
        f"{figures['batch_size']:,}",
        str(figures["lookahead_batches"]),
        str(figures["trainers"]),
        f"{figures['samples_per_s']:,.0f}",
        f"{figures['look_ups_per_s'] / 1e6:.1f}",
        f"{figures['samples_per_cpu_s']:,.0f}",
        f"{figures['batch_size'] / figures['samples_per_s'] * 1e3:.2f}",
        f"{figures['batch_size'] / figures['samples_per_cpu_s'] * 1e3:.2f}",
        f"{figures['batch_size'] / figures['samples_per_critical_s'] * 1e3:.2f}",
        f"{figures['state_bytes_per_row']:.2f}",
        f"{figures['state_bytes'] / 1e6:,.1f}",
        f"{figures['window_bytes'] / 1e6:,.1f}",
        f"{figures['plan_bytes'] / 1e6:.2f}",
        f"{figures['unique_rows']:,}",
        f"{figures['fetched_rows']:,}",
    ]
