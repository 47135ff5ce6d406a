"""RecShard's split as a placement: tables on servers, their hottest rows pinned at the trainers."""

from typing import Any

from bagpipe_hpc.rows.access_statistics import TableAccesses
from bagpipe_hpc.rows.array_file import Int64s
from bagpipe_hpc.rows.placements.assignment import server_limit
from bagpipe_hpc.rows.placements.planned import Found, PlannedTables, Request
from bagpipe_hpc.rows.placements.recshard.exact import solve
from bagpipe_hpc.rows.placements.recshard.problem import Device, Problem, Split, SplitTable
from bagpipe_hpc.rows.placements.settings import RecShardSettings


class RecShard(PlannedTables):
    """Devices are the servers; their slow memory is their own, their fast memory a part of that at the trainers."""

    @classmethod
    def search(cls, request: Request, settings: Any) -> Found:
        """Solve the split, and pin the rows of fast memory."""
        problem = problem_of(request, settings)
        solution = solve(problem, settings.time_limit_s)
        split, names = solution.split, [table.name for table in request.tables]
        accesses = request.statistics.tables
        pinned, per_batch = {}, 0
        for number, (name, hottest) in enumerate(zip(names, request.statistics.hottest(names), strict=True)):
            pinned[name] = hottest[0][: problem.tables[number].curve[split.steps[number]]]
            per_batch += slow_accesses_of(accesses[name], pinned[name], hottest)
        slow = problem.slow_accesses(split) / max(1.0, sum(table.accesses for table in problem.tables))
        times = problem.times(split)
        all_slow = problem.slowest(Split(split.devices, (0,) * len(names)))
        no_memory = ["nothing can be pinned: tables.fast_gb = 0"] * (settings.fast_gb == 0)
        return Found(
            split.devices,
            [
                f"recshard: {solution.how}",
                *no_memory,
                f"slowest server: {1e3 * max(times):.4g} ms of a batch; the mean is "
                f"{1e3 * sum(times) / len(times):.4g} ms, no split has less than "
                f"{1e3 * solution.bound:.4g} ms, and without fast memory it is {1e3 * all_slow:.4g} ms",
                f"pinned: {sum(map(len, pinned.values()))} rows; slow accesses: at most {slow:.2%}, "
                f"by the counts {per_batch / max(1, sum(accesses[name].look_ups for name in names)):.2%}",
            ],
            pinned,
            [1e3 * seconds for seconds in times],
        )


def problem_of(request: Request, settings: RecShardSettings) -> Problem:
    """What is to be split."""
    every = 100 // settings.steps
    tables = tuple(
        SplitTable(
            table.rows,
            table.row_bytes,
            request.batch_size * weight_of(found, settings.weigh),
            found.curve[::every],
        )
        for table in request.tables
        for found in [request.statistics.of(table.name, table.rows)]
    )
    device = Device(
        settings.fast_gb * 1e9 / request.servers,
        server_limit(settings),
        settings.fast_gb_s * 1e9,
        settings.slow_gb_s * 1e9,
    )
    return Problem(tables, (device,) * request.servers, keeps_place=True)


def weight_of(table: TableAccesses, weigh: str) -> float:
    """Look-ups of a sample, or the part of them that is wanted."""
    if weigh == "coverage":
        return table.coverage
    return table.pooling if weigh == "pooling" else table.sample_look_ups


def slow_accesses_of(table: TableAccesses, pinned: Int64s, hottest: tuple[Int64s, Int64s]) -> int:
    """Look-ups of the counted samples that are of rows that are not pinned; pinned rows are the hottest ones."""
    return table.look_ups - int(hottest[1][: pinned.size].sum())
