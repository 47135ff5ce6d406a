"""The best split by a mixed-integer linear program, with HiGHS of SciPy.

    x[j,m,s] in {0, 1}        table j on device m with the share s/S of its accesses in fast memory
    sum_{m,s} x[j,m,s] = 1                                     for every table j
    sum_{j,s} x[j,m,s] * fast bytes(j, s) <= fast memory of m  for every device m
    sum_{j,s} x[j,m,s] * slow bytes(j, s) <= slow memory of m  for every device m
    sum_{j,s} x[j,m,s] * time(j, m, s)    <= T                 for every device m
    minimise T

The joint variable keeps it linear.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.rows.placements.recshard.greedy import fill_fast_memory, split_greedily
from bagpipe_hpc.rows.placements.recshard.problem import Problem, Split, best_of

_MOST_CHOICES = 2_000_000
"""Variables above which the program is not even written down."""


@dataclass(frozen=True)
class Solution:
    """A split, and how it was found.

    Attributes:
        split: the decision.
        how: in words.
        bound: no split has a slowest device below this many seconds, as far as the search has shown.
    """

    split: Split
    how: str
    bound: float = 0.0


def solve(problem: Problem, time_limit_s: float, gap: float = 1e-4) -> Solution:
    """The best split, or the best that is found in time.

    Args:
        problem: what is to be split.
        time_limit_s: limit of the quick search, and of the exact one; 0 leaves the exact one out.
        gap: the search ends when no split can be better by this share.

    Raises:
        ConfigError: there is no split at all, or none was found in time; SciPy is not installed.
    """
    quick = split_greedily(problem, time_limit_s or float("inf"))
    choices = len(problem.tables) * len(problem.devices) * (problem.steps + 1)
    if time_limit_s == 0 or choices > _MOST_CHOICES:
        if quick is None:
            raise ConfigError(
                "recshard: the quick search finds no room for all tables; use more servers, allow more "
                "(tables.server_gb), or the exact search (tables.time_limit_s)"
            )
        left_out = "tables.time_limit_s = 0" if time_limit_s == 0 else f"{choices} choices are too many"
        return Solution(quick, f"{left_out}; found by greedy search")
    found, status, bound = _search(problem, time_limit_s, gap, quick)
    splits = [split for split in (found, quick) if split is not None]
    if not splits:
        raise ConfigError(
            f"recshard: {status}; use more servers, allow more (tables.server_gb), or a longer search "
            "(tables.time_limit_s)"
        )
    best = best_of(problem, splits)
    filled = Split(best.devices, fill_fast_memory(problem, best.devices, best.steps))
    by = "exact search" if best == found else "greedy search"
    return Solution(filled, f"{status}; found by {by}", bound)


@contextmanager
def _muted() -> Iterator[None]:
    """Discard what native code writes to standard output: HiGHS 1.12 logs its search there, asked to or not."""
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    try:
        os.dup2(nowhere := os.open(os.devnull, os.O_WRONLY), 1)
        os.close(nowhere)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _search(problem: Problem, time_limit_s: float, gap: float, quick: Split | None) -> tuple[Split | None, str, float]:
    """The split that HiGHS finds, if any; how the search ended, in words; and its bound in seconds."""
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - for this alone
        from scipy.sparse import csr_array  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"recshard: the exact search needs SciPy ({error}); install bagpipe_hpc[placements] or scipy, or set "
            "tables.time_limit_s=0 for the greedy search alone"
        ) from error
    program = _Program(problem)
    unknowns = len(program.choices) + 1
    longest = np.inf if quick is None else problem.slowest(quick) / program.second * (1 + 1e-9)
    entries = csr_array(program.entries, shape=(len(program.upper), unknowns))
    with _muted():
        result = milp(
            np.append(np.zeros(unknowns - 1), 1.0),
            constraints=LinearConstraint(entries, *program.bounds),
            bounds=Bounds(np.zeros(unknowns), np.append(program.most, longest)),
            integrality=np.append(np.ones(unknowns - 1), 0.0),
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
    said = {
        0: f"no split is better by {100 * gap:g} %",
        1: f"{time_limit_s:g} s were over",
        2: "no split keeps all limits",
    }
    status, bound = said.get(result.status, str(result.message)), float(result.mip_dual_bound or 0.0) * program.second
    if result.x is None:
        return None, status, bound
    chosen = [program.choices[column] for column in np.flatnonzero(result.x[:-1] > 0.5)]
    split = Split(tuple(device for _, device, _ in chosen), tuple(step for _, _, step in chosen))
    if faults := problem.faults(split):  # by the solver's tolerance
        return None, f"{status}, but {faults[0]}", bound
    return split, status, bound


class _Program:
    """The constraints in shares of what is there, so that the solver's tolerances mean the same for any size.

    Attributes:
        choices: table, device and step of each variable x; the last variable is T, in units of `second`.
        second: seconds of all accesses from the fastest slow memory.
        entries: values of the matrix of constraints, and the row and column of each.
        upper: upper bound of each constraint.
        most: of each x: 0 for a choice that alone takes too much. Where devices are alike, it is also 0 for the k-th
            dearest table, from 0, on a device above k: such splits are others with the devices renumbered.
    """

    def __init__(self, problem: Problem) -> None:
        devices, tables = len(problem.devices), len(problem.tables)
        self.choices = list(product(range(tables), range(devices), range(problem.steps + 1)))
        least = [min(problem.time(table, device, 0) for device in range(devices)) for table in range(tables)]
        self.second = sum(least) or 1.0
        self.most = np.ones(len(self.choices))
        self._tables = tables
        alike = len(set(problem.devices)) == 1
        dearest_first = sorted(range(tables), key=lambda table: (-problem.time(table, 0, 0), table))
        rank = {table: number for number, table in enumerate(dearest_first)}
        self.upper = np.append(np.ones(tables + 2 * devices), np.zeros(devices))
        found: list[tuple[float, int, int]] = []
        for column, (table, device, step) in enumerate(self.choices):
            limits = problem.devices[device]
            if alike and device > rank[table]:
                self.most[column] = 0.0
            found.append((1.0, table, column))
            found.append((problem.time(table, device, step) / self.second, tables + 2 * devices + device, column))
            for first, taken, limit in (
                (tables, problem.fast_bytes(table, step), limits.fast_bytes),
                (tables + devices, problem.slow_bytes(table, step), limits.slow_bytes),
            ):
                if taken > limit:
                    self.most[column] = 0.0
                elif taken:
                    found.append((taken / limit, first + device, column))
        found += [(-1.0, tables + 2 * devices + device, len(self.choices)) for device in range(devices)]
        values, rows, columns = zip(*found, strict=True)
        self.entries = np.array(values), (np.array(rows), np.array(columns))

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of each constraint: every table has one choice, no device has too much."""
        lower = np.append(np.ones(self._tables), np.full(len(self.upper) - self._tables, -np.inf))
        return lower, self.upper
