"""RecShard's split is the best there is, keeps every limit, and its accesses are those of a replayed trace."""

import ctypes
import os
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.access_statistics import access_curve, read_statistics
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.planned import Request
from bagpipe_hpc.rows.placements.recshard.exact import solve
from bagpipe_hpc.rows.placements.recshard.greedy import fill_fast_memory, split_greedily
from bagpipe_hpc.rows.placements.recshard.placement import RecShard, problem_of
from bagpipe_hpc.rows.placements.recshard.problem import Device, Problem, Split, SplitTable
from bagpipe_hpc.rows.placements.settings import RecShardSettings
from tests.drawing import share_of
from tests.statistics_files import write_accesses, zipf_counts

FAST, SLOW = 100.0, 1.0


def problem(
    seed: int, fast: float, slow: float = 10.0, tables: int = 4, steps: int = 4, alike: bool = False, **more: bool
) -> Problem:
    """Random tables on two devices, alike or not, whose memories hold so many times half of all rows."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(tables):
        counts = -np.sort(-(rng.integers(1, 50, rng.integers(1, 30)) ** 2))
        curve = access_curve(counts, steps)
        unused = int(rng.integers(0, 10))
        found.append(
            SplitTable(len(counts) + unused, int(rng.integers(1, 9)), float(rng.integers(1, 99)), tuple(curve.tolist()))
        )
    half = sum(table.rows * table.row_bytes for table in found) / 2
    first = Device(fast * half, slow * half, FAST, SLOW)
    other = first if alike else Device(fast * half / 2, slow * half, FAST / 2, SLOW)
    return Problem(tuple(found), (first, other), **more)


def brute_force(asked: Problem) -> float:
    """Seconds of the slowest device of the best split; infinite where there is none."""
    tables, devices = len(asked.tables), range(len(asked.devices))
    splits = product(product(devices, repeat=tables), product(range(asked.steps + 1), repeat=tables))
    return min(
        (asked.slowest(split) for split in (Split(*one) for one in splits) if not asked.faults(split)),
        default=float("inf"),
    )


@pytest.mark.parametrize(("fast", "slow"), [(0.1, 10.0), (0.3, 1.2), (0.0, 10.0), (0.6, 0.9), (0.2, 0.8)])
@pytest.mark.parametrize("keeps_place", [False, True])
@pytest.mark.parametrize("alike", [False, True])
def test_the_program_finds_the_best_of_all_splits(fast: float, slow: float, keeps_place: bool, alike: bool) -> None:
    """Of 10,000 splits: four tables, two devices, four steps."""
    seed = int(100 * fast + slow)
    asked = problem(seed, fast, slow, alike=alike, keeps_place=keeps_place)
    best = brute_force(asked)
    if best == float("inf"):
        with pytest.raises(ConfigError, match="no split keeps all limits; use more servers"):
            solve(asked, 60)
        return
    solution = solve(asked, 60, gap=1e-9)
    assert asked.faults(solution.split) == []
    assert asked.slowest(solution.split) == pytest.approx(best, rel=1e-6)
    assert solution.bound <= best * (1 + 1e-6)
    quick = split_greedily(asked)
    assert quick is None or (asked.faults(quick) == [] and asked.slowest(quick) >= best * (1 - 1e-9))


def test_more_fast_memory_is_never_slower_and_ample_memory_takes_all_used_rows() -> None:
    times = []
    for fast in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 4.0):
        asked = problem(7, fast, tables=6, steps=10)
        times.append(asked.slowest(solve(asked, 60, gap=1e-9).split))
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(times))
    ample = problem(7, 4.0, tables=6, steps=10)
    for split in (solve(ample, 60).split, solve(ample, 0).split):
        assert split.steps == (10,) * 6
        assert ample.slow_accesses(split) == 0
        taken = [ample.fast_bytes(table, 10) for table in range(6)]
        assert taken == [table.curve[-1] * table.row_bytes for table in ample.tables]


def test_without_fast_memory_nothing_is_fast() -> None:
    asked = problem(3, 0.0)
    assert [asked.fast_bytes(table, step) for table, step in enumerate(solve(asked, 60).split.steps)] == [0] * 4


@settings(max_examples=share_of(25))
@given(st.integers(0, 999), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.7, 1.1, 9.0]), st.booleans())
def test_the_quick_search_keeps_every_limit(seed: int, fast: float, slow: float, keeps_place: bool) -> None:
    asked = problem(seed, fast, slow, tables=6, steps=5, keeps_place=keeps_place)
    split = split_greedily(asked)
    if split is not None:
        assert asked.faults(split) == []
        again = fill_fast_memory(asked, split.devices, split.steps)
        assert again == split.steps, "there is room left"


class TakesMore(Problem):
    """Forgets the limit of fast memory."""

    def fast_bytes(self, table: int, step: int) -> int:
        return 0 if step < self.steps else super().fast_bytes(table, step) // 2


def test_a_broken_constraint_is_noticed() -> None:
    """What a program without the limit finds breaks it."""
    asked = problem(1, 0.1)
    broken = TakesMore(asked.tables, asked.devices)
    split = solve(broken, 60).split
    assert any("fast memory" in fault for fault in asked.faults(split))
    assert asked.faults(Split((0, 1, 2, 0), (0, 0, 5, 0)))[0].startswith("devices")


def request(path: Path, servers: int = 2) -> Request:
    counts = {f"C{number}": zipf_counts(rows, 4000) for number, rows in enumerate((300, 2000, 40, 900), start=1)}
    counts["C5"] = [0] * 50
    statistics = read_statistics(write_accesses(path / "accesses.npz", counts, samples=5000))
    tables = tuple(WholeTable(name, len(found), 8, 36) for name, found in counts.items())
    return Request(tables, statistics, servers, batch_size=100)


@pytest.mark.parametrize("limit_s", [60.0, 0.0])
def test_slow_accesses_of_a_replayed_trace_are_the_predicted_ones(tmp_path: Path, limit_s: float) -> None:
    """Rows are replayed one by one. At most those that the curve says are slow; a pinned row less, and more are."""
    asked = request(tmp_path)
    chosen = RecShardSettings(fast_gb=36 * 500 / 1e9, steps=50, time_limit_s=limit_s)
    found, modelled = RecShard.search(asked, chosen), problem_of(asked, chosen)
    assert sum(map(len, found.pinned.values())) * 36 <= 18_000
    rng = np.random.default_rng(0)
    hottest = asked.statistics.hottest(table.name for table in asked.tables)
    for number, (table, (rows, counts)) in enumerate(zip(asked.tables, hottest, strict=True)):
        trace = rng.permutation(np.repeat(rows, counts))
        pinned = set(found.pinned[table.name].tolist())
        slow = sum(row not in pinned for row in trace.tolist())
        steps = [step for step in range(51) if modelled.tables[number].curve[step] == len(pinned)]
        assert steps, "as many rows as at a step of the curve"
        assert slow * 50 <= (50 - max(steps)) * len(trace)
        if pinned:
            coldest_pinned = counts[len(pinned) - 1]
            assert (slow + coldest_pinned) * 50 > (50 - max(steps)) * len(trace)
    assert f"pinned: {sum(map(len, found.pinned.values()))} rows" in found.report[-1]


@pytest.mark.parametrize("fast_gb", [0.0, 1e-6])
def test_without_fast_memory_it_is_said_why_nothing_is_pinned(tmp_path: Path, fast_gb: float) -> None:
    report = RecShard.search(request(tmp_path), RecShardSettings(fast_gb=fast_gb, time_limit_s=0.0)).report
    assert ("nothing can be pinned: tables.fast_gb = 0" in report) == (fast_gb == 0)


def test_ablations_weigh_by_one_factor(tmp_path: Path) -> None:
    asked = request(tmp_path)
    weights = {
        weigh: [table.accesses for table in problem_of(asked, RecShardSettings(weigh=weigh)).tables]
        for weigh in ("accesses", "coverage", "pooling")
    }
    of_tables = [asked.statistics.tables[table.name] for table in asked.tables]
    assert weights["coverage"] == [100 * table.coverage for table in of_tables]
    assert weights["pooling"] == [100 * table.pooling for table in of_tables]
    products = np.array(weights["coverage"]) * weights["pooling"] / 100
    assert weights["accesses"] == pytest.approx(products)


def test_what_takes_too_long_is_left_to_the_quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = problem(5, 0.2)
    assert solve(asked, 0).how == "tables.time_limit_s = 0; found by greedy search"
    monkeypatch.setattr("bagpipe_hpc.rows.placements.recshard.exact._MOST_CHOICES", 39)
    assert solve(asked, 60).how == "40 choices are too many; found by greedy search"


def test_nothing_but_what_the_command_says_is_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some versions of HiGHS write to it by C's own stream, whose text comes when that is flushed."""
    true_milp = scipy.optimize.milp

    def talking(*arguments: Any, **settings: Any) -> Any:
        ctypes.CDLL(None).puts(b"tmpSolver.run();")
        os.write(1, b"as well")
        return true_milp(*arguments, **settings)

    monkeypatch.setattr(scipy.optimize, "milp", talking)
    solve(problem(1, 0.3), time_limit_s=60)
    os.write(1, b"the plan")
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "the plan"


def test_scipy_is_wanted_for_the_exact_search_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigError, match=r"needs SciPy .*install bagpipe_hpc\[placements\] or scipy"):
        solve(problem(5, 0.2), 60)
    assert solve(problem(5, 0.2), 0).split


@pytest.mark.parametrize(
    ("changes", "problem_of_it"),
    [
        ({"fast_gb": -1.0}, "fast_gb"),
        ({"fast_gb_s": 0.0}, "fast_gb_s"),
        ({"slow_gb_s": float("inf")}, "slow_gb_s"),
        ({"fast_gb_s": 0.5}, r"fast_gb_s = 0.5: use 1.0 \(slow_gb_s\) or more"),
        ({"steps": 3}, "steps = 3: use a divisor of 100"),
        ({"weigh": "luck"}, "weigh = 'luck': use one of"),
        ({"time_limit_s": -1.0}, "time_limit_s"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, float], problem_of_it: str) -> None:
    with pytest.raises(SettingError, match=problem_of_it):
        replace(RecShardSettings(), **changes)
