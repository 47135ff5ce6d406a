"""`python -m benchmarks planner`: what it measures, and a tiny measurement from start to end."""

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from benchmarks.kaggle.rows import TABLE_ROWS, draw_batches
from benchmarks.planner import benchmark as planner
from benchmarks.planner.benchmark import (
    HEADINGS,
    Setting,
    measure_settings,
    scaled_tables,
    swept_settings,
    table_row,
)
from benchmarks.planner.pace import describe_plans, ring_batches

needs_native = pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")

TABLES = (3, 500, 20_000)
TINY = Setting(TABLES, batch_size=32, lookahead=4, trainers=2)


def arguments(**changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {"batch_size": 64, "lookahead": 4, "trainers": 2, "steps": 2, "sweep": [], "quick": False}
    values["sharing"] = "replicated"
    return argparse.Namespace(**values | {"runs": 1} | changes)


@pytest.mark.parametrize("rows", [1_000_000, 33_762_577, 1_000_000_000])
def test_tables_are_scaled_together(rows: int) -> None:
    tables = scaled_tables(rows)
    assert len(tables) == len(TABLE_ROWS)
    assert sum(tables) == pytest.approx(rows, rel=1e-3)
    assert min(tables) >= 1


def test_ids_are_drawn_from_the_tables_that_are_asked_for() -> None:
    """Up to a table's last row, the first ones most often."""
    (rows,) = draw_batches(1, 5000, 1.05, seed=1, table_rows=TABLES)
    assert (rows >= [0, 3, 503]).all()
    assert (rows < [3, 503, 20_503]).all()
    assert (rows[:, 2] < 503 + 200).mean() > 0.4


def test_a_sweep_changes_one_thing() -> None:
    base = Setting(TABLE_ROWS, 16384, 200, 2)
    assert {setting.batch_size for setting in swept_settings(base, "batch", quick=False)} == {2048, 8192, 16384, 65536}
    assert {setting.lookahead for setting in swept_settings(base, "lookahead", quick=False)} == {1, 10, 50, 200}
    by_threads = swept_settings(base, "threads", quick=False)
    assert [setting.threads for setting in by_threads[:6]] == [1, 2, 4, 8, 16, 32]
    assert {(setting.trainers, setting.sharing) for setting in by_threads} == {
        (trainers, sharing) for trainers in (2, 64, 256) for sharing in ("replicated", "home")
    }
    assert [(one.trainers, one.name) for one in swept_settings(base, "trainers", quick=False)[3:6]] == [
        (8, "native, dense"),
        (8, "native, dense, home"),
        (8, "NumPy, home"),
    ]
    assert [(one.longest, one.batch_size) for one in swept_settings(base, "bags", quick=False)] == [
        (0, 16384),
        (1, 16384),
        (10, 2978),
        (100, 324),
    ]
    by_rows = swept_settings(base, "rows", quick=False)
    rows = {(round(sum(setting.table_rows), -5), setting.state) for setting in by_rows}
    assert {state for total, state in rows if total == 10**9} == {"sparse"}
    assert {state for total, state in rows if total == 10**7} == {"dense", "sparse"}


@pytest.mark.parametrize(("sweep", "planners"), [("batch", 2), ("lookahead", 2)])
def test_a_look_whose_ends_are_one_measures_it_once(sweep: str, planners: int) -> None:
    base = Setting(TABLE_ROWS, batch_size=2048, lookahead=1, trainers=2)
    assert len(swept_settings(base, sweep, quick=True)) == planners


@needs_native
def test_planners_are_measured_on_the_same_plans() -> None:
    """Whatever makes them, plans have the same size; state is 8, 12 or fewer bytes a row."""
    settings = [TINY, Setting(TABLES, 32, 4, 2, is_native=False), Setting(TABLES, 32, 4, 2, state="sparse")]
    native, reference, sparse = (result.figures() for result in measure_settings(settings, steps=3, runs=2))
    for name in ("plan_bytes", "unique_rows", "fetched_rows", "cache_rows"):
        assert native[name] == reference[name] == sparse[name]
    assert (native["state_bytes_per_row"], reference["state_bytes_per_row"]) == (8.0, 12.0)
    assert sparse["state_bytes"] < native["state_bytes"]
    assert all(len(table_row(figures)) == len(HEADINGS) for figures in (native, reference, sparse))


@needs_native
def test_the_critical_path_is_part_of_the_processor_time() -> None:
    """All of it, but for counting, where one thread does everything."""
    ring = list(
        map(Bags.one_hot, draw_batches(ring_batches(TINY.lookahead), TINY.batch_size, 1.05, seed=1, table_rows=TABLES))
    )
    shares = []
    for setting in (TINY, replace(TINY, is_native=False), replace(TINY, threads=3)):
        steady = setting.start(ring)
        start_s = time.process_time()
        critical_s = steady.critical_s(30)
        shares.append(critical_s / (time.process_time() - start_s))
    assert 0.5 < min(shares[:2]) <= max(shares[:2]) <= 1.05
    assert shares[2] < 1


@needs_native
def test_bags_are_measured_by_their_look_ups() -> None:
    """Bags of 1 to 5 rows have 3 on average, in each of three tables."""
    (result,) = measure_settings([replace(TINY, longest=5, batch_size=200)], steps=3, runs=1)
    figures = result.figures()
    assert figures["planner"] == "native, dense, bags of 1 to 5"
    assert figures["look_ups"] == pytest.approx(200 * 3 * 3, rel=0.1)
    assert figures["look_ups_per_s"] == pytest.approx(figures["samples_per_s"] * 9, rel=0.1)


@needs_native
def test_a_round_of_plans_has_its_share_of_write_backs() -> None:
    """In the long run as many rows are written back as are fetched: the ring returns only rows that have left."""
    ring = draw_batches(ring_batches(TINY.lookahead), TINY.batch_size, 1.05, seed=1, table_rows=TABLES)
    steady = TINY.start(list(map(Bags.one_hot, ring)))
    fetched, written = [], []
    steady.run(4 * len(ring), lambda plan: fetched.append(plan.shared.fetched_rows))
    steady.run(4 * len(ring), lambda plan: written.append(sum(part.write_back_rows.size for part in plan.trainers)))
    assert sum(written) == pytest.approx(sum(fetched), rel=0.1)
    assert describe_plans(steady).plan_bytes > TINY.batch_size * len(TABLES) * np.dtype(np.int32).itemsize


@needs_native
def test_a_measurement_fills_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "TABLE_ROWS", TABLES)
    report = planner.run(arguments(sweep=["lookahead", "threads"], quick=True))
    names = [figures["planner"] for figures in report.figures["planners"]]
    assert names == ["native, dense", "NumPy", "native, sparse"]
    assert set(report.figures["sweeps"]) == {"lookahead", "threads"}
    assert all(figures["samples_per_s"] > 0 for figures in report.figures["planners"])


def test_without_the_native_planner_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_library, "is_built", lambda _: False)
    with pytest.raises(ConfigError, match="the native planner was not built"):
        planner.run(arguments())
