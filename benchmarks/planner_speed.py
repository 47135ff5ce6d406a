"""Samples per second of the oracle's planner, on look-ups over Criteo Kaggle's 33.8 million rows.

    python benchmarks/planner_speed.py --lookahead 40 200 --batches 300

Plans whole segments (`plan_segment`: window, slots, translated look-ups, write-backs) and measures them as the run's
preparation does (`measure_segment`: window and slots alone). The batches are drawn before the clock starts, and one
pass that is not timed touches every page. The planner has one thread, so the rate per second of processor time is what
it reaches on a core of its own. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.bench.conditions import conditions
from bagpipe_hpc.bench.kaggle_rows import TABLE_ROWS, draw_batches, total_rows
from bagpipe_hpc.config import LookaheadConfig
from bagpipe_hpc.planning.capacity import measure_need
from bagpipe_hpc.planning.lookahead import LookaheadPlanner
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.window import Window

Batches = Sequence[NDArray[np.int64]]


def rates(samples: int, runs: int, work: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Samples per second of elapsed and of processor time in each run, after one that does not count."""
    elapsed, processor = [], []
    for _ in range(runs + 1):
        start, start_processor = time.perf_counter(), time.process_time()
        work()
        elapsed.append(samples / (time.perf_counter() - start))
        processor.append(samples / (time.process_time() - start_processor))
    return elapsed[1:], processor[1:]


def count_plans(planner: LookaheadPlanner, batches: Batches) -> dict[str, float]:
    """What the plans say, and how large they are on the wire; means of a batch."""
    unique = fetched = wire_bytes = 0
    for plan in plan_segment(planner, batches):
        unique += plan.shared.unique_rows
        fetched += plan.shared.fetched_rows
        wire_bytes += plan.shared.encode().nbytes + sum(part.encode().nbytes for part in plan.trainers)
    return {
        "unique_rows": round(unique / len(batches)),
        "fetched_rows": round(fetched / len(batches)),
        "hit_rate": round(1 - fetched / unique, 4),
        "plan_bytes": round(wire_bytes / len(batches)),
    }


def measure(batches: Batches, lookahead: int, trainers: int, runs: int) -> dict[str, Any]:
    """Figures of one window."""
    window = Window(lookahead, LookaheadConfig(batches=lookahead).group_batches)
    need = measure_need(total_rows(), trainers, window, lambda: iter([batches]))
    planner = LookaheadPlanner(total_rows(), trainers, window, need.shared_rows, need.private_rows)
    samples = sum(len(batch) for batch in batches)

    def plan_all() -> None:
        for _ in plan_segment(planner, batches):
            pass

    planned, planned_processor = rates(samples, runs, plan_all)
    measured, measured_processor = rates(samples, runs, lambda: measure_segment(planner, batches))
    return {
        "lookahead_batches": lookahead,
        "group_batches": window.group,
        "plan_samples_per_s": round(statistics.median(planned)),
        "plan_samples_per_s_of_runs": [round(rate) for rate in planned],
        "plan_samples_per_cpu_s": round(statistics.median(planned_processor)),
        "plan_ms_per_batch": round(samples / len(batches) / statistics.median(planned) * 1e3, 2),
        "measure_samples_per_s": round(statistics.median(measured)),
        "measure_samples_per_cpu_s": round(statistics.median(measured_processor)),
        "state_bytes_per_row": planner.state_bytes / total_rows(),
        "cache_rows": need.total_rows,
        **count_plans(planner, batches),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lookahead", type=int, nargs="+", default=[40, 200], metavar="L", help="default: 40 200")
    parser.add_argument("--batches", type=int, default=300, help="batches of a segment (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=16384, help="samples of a batch (default: %(default)s)")
    parser.add_argument("--trainers", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs, of which the median counts (default: 3)")
    parser.add_argument("--zipf", type=float, default=1.05, help="skew of the ids, not 1 (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="30 batches of 2,048 samples, L = 10, one run")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lookahead, arguments.batches, arguments.batch_size, arguments.runs = [10], 30, 2048, 1
    batches = draw_batches(arguments.batches, arguments.batch_size, arguments.zipf, seed=1)
    print(
        f"{total_rows():,} rows in {len(TABLE_ROWS)} tables; {len(batches)} batches of {arguments.batch_size} samples "
        f"({sum(batch.nbytes for batch in batches) / 1e6:,.0f} MB); {arguments.trainers} trainers"
    )
    windows = []
    for lookahead in arguments.lookahead:
        figures = measure(batches, lookahead, arguments.trainers, arguments.runs)
        windows.append(figures)
        print(
            f"L = {lookahead:4}: planned {figures['plan_samples_per_s']:10,} samples/s "
            f"({figures['plan_ms_per_batch']} ms a batch; {figures['plan_samples_per_cpu_s']:,} a processor second), "
            f"measured {figures['measure_samples_per_s']:10,} samples/s, "
            f"{figures['state_bytes_per_row']:.0f} bytes of state a row, {figures['cache_rows']:,} cache rows, "
            f"{figures['unique_rows']:,} unique rows a batch, {figures['hit_rate']:.1%} hits, "
            f"{figures['plan_bytes'] / 1e6:.2f} MB a plan",
            flush=True,
        )
    facts = {"batches": len(batches), "batch_size": arguments.batch_size, "trainers": arguments.trainers}
    facts |= {"rows": total_rows(), "zipf": arguments.zipf, "runs": arguments.runs}
    print(json.dumps(conditions() | facts | {"windows": windows}))


if __name__ == "__main__":
    main()
