"""A quick split: tables by falling time, fast memory by the gain of each byte, then moves and swaps of tables.

It is what the exact search starts from, and what is left where that takes too long.
"""

import heapq
import time
from collections.abc import Iterator
from itertools import product

from bagpipe_hpc.rows.placements.recshard.problem import Problem, Split


def split_greedily(problem: Problem, time_limit_s: float = float("inf")) -> Split | None:
    """A split that no single move or swap of tables makes better.

    Args:
        problem: what is to be split.
        time_limit_s: after so many seconds the best one so far is taken.

    Returns:
        None where no server has room for a table when its turn comes.
    """
    ends = time.monotonic() + time_limit_s
    devices = _deal(problem)
    if devices is None:
        return None
    best = Split(devices, fill_fast_memory(problem, devices))
    has_changed = True
    while has_changed:
        has_changed = False
        for candidate in _neighbours(problem, best):
            if time.monotonic() > ends:
                return best
            split = Split(candidate, fill_fast_memory(problem, candidate))
            if not problem.faults(split) and _is_better(problem, split, best):
                best, has_changed = split, True
                break
    return best


def fill_fast_memory(problem: Problem, devices: tuple[int, ...], steps: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Steps of tables on given devices: fast memory goes to where a byte saves most time, as long as it lasts.

    A table's rows fall in accesses, so a further step never saves more for a byte than the one before: for whole steps
    of one size this is the best there is.

    Args:
        problem: what is to be split.
        devices: of each table.
        steps: from which to go on; left out: from none in fast memory.
    """
    chosen = list(steps or [0] * len(devices))
    left = [device.fast_bytes for device in problem.devices]
    for table, device in enumerate(devices):
        left[device] -= problem.fast_bytes(table, chosen[table])
    waiting = [(-_gain(problem, table, device, chosen[table]), table) for table, device in enumerate(devices)]
    heapq.heapify(waiting)
    while waiting:
        _, table = heapq.heappop(waiting)
        device, step = devices[table], chosen[table]
        if step == problem.steps:
            continue
        more = problem.fast_bytes(table, step + 1) - problem.fast_bytes(table, step)
        if more > left[device] or _gain(problem, table, device, step) < 0:
            continue  # later steps take as much or more
        left[device] -= more
        chosen[table] += 1
        heapq.heappush(waiting, (-_gain(problem, table, device, step + 1), table))
    return tuple(chosen)


def _gain(problem: Problem, table: int, device: int, step: int) -> float:
    """Seconds that a byte of the next step saves."""
    if step == problem.steps:
        return 0.0
    saved = problem.time(table, device, step) - problem.time(table, device, step + 1)
    more = problem.fast_bytes(table, step + 1) - problem.fast_bytes(table, step)
    return saved / more if more else float("inf") if saved > 0 else saved


def _deal(problem: Problem) -> tuple[int, ...] | None:
    """Tables by falling time to the device that is done first, among those whose slow memory has room."""
    loads, held = [0.0] * len(problem.devices), [0] * len(problem.devices)
    devices = [0] * len(problem.tables)
    order = sorted(range(len(devices)), key=lambda table: (-problem.time(table, 0, 0), table))
    for table in order:
        taken = problem.slow_bytes(table, 0)
        having_room = [
            device for device, limits in enumerate(problem.devices) if held[device] + taken <= limits.slow_bytes
        ]
        if not having_room:
            return None
        chosen = min(having_room, key=lambda device: loads[device] + problem.time(table, device, 0))
        devices[table] = chosen
        held[chosen] += taken
        loads[chosen] += problem.time(table, chosen, 0)
    return tuple(devices)


def _neighbours(problem: Problem, split: Split) -> Iterator[tuple[int, ...]]:
    """The devices after each move of a table off the slowest device, then after each swap of one with another's."""
    times = problem.times(split)
    slowest = times.index(max(times))
    own = [table for table, device in enumerate(split.devices) if device == slowest]
    for table, device in product(own, range(len(problem.devices))):
        if device != slowest:
            yield _with(split.devices, {table: device})
    for table, other in product(own, range(len(split.devices))):
        if (device := split.devices[other]) != slowest:
            yield _with(split.devices, {table: device, other: slowest})


def _with(devices: tuple[int, ...], changes: dict[int, int]) -> tuple[int, ...]:
    return tuple(changes.get(table, device) for table, device in enumerate(devices))


def _is_better(problem: Problem, split: Split, than: Split) -> bool:
    """By the slowest device, then by the next one, and so on."""
    times = [sorted(problem.times(one), reverse=True) for one in (split, than)]
    return times[0] < times[1] and not all(
        abs(first - second) <= 1e-12 * second for first, second in zip(*times, strict=True)
    )
