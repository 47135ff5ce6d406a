"""`python -m benchmarks.pooling`: pooling of weighted ids and its derivative, fused, step by step and in plain torch.

The three take turns on the same bags; times are medians of all rounds, and so are the rounds' ratios. Torch's is
`nn.functional.embedding_bag` with weights of ids on the same table, looked up by id; its derivative is that for the
rows of the batch. On a GPU the order of the look-ups is known before, as in a run.

Legend: `R` rows of the table, `U` distinct rows of a batch, `V` look-ups, `O` outputs, `D` embedding width.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bagpipe_hpc.cluster.allocator import keep_all_freed_memory
from bagpipe_hpc.kernels.rows.pooling import PoolLayout, pool_step_by_step, sum_pooled_step_by_step
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.tools.report import Report, median

_TABLE_ROWS, _BATCH_ROWS, _LOOK_UPS = 200_000, 50_000, 200_000
_WAYS = ("fused", "step by step", "torch")

Calls = tuple[Callable[[], object], Callable[[], object]]
"""Forward and backward."""


def _ways(ids: int, width: int, device: torch.device) -> list[Calls]:
    """What each of `_WAYS` does, on the same bags of so many ids; a sixteenth of the rows get half of the look-ups."""
    rng = np.random.default_rng(1)
    outputs = _LOOK_UPS // ids
    positions = torch.from_numpy((rng.random(outputs * ids) ** 4 * _BATCH_ROWS).astype(np.int32)).to(device)
    slots = torch.from_numpy(rng.permutation(_TABLE_ROWS)[:_BATCH_ROWS].astype(np.int32)).to(device)
    table, gradients = torch.randn(_TABLE_ROWS, width, device=device), torch.randn(outputs, width, device=device)
    layout = PoolLayout(
        torch.arange(outputs + 1, dtype=torch.int32, device=device) * ids,
        torch.arange(outputs, dtype=torch.int32, device=device).repeat_interleave(ids),
        torch.rand(outputs * ids, device=device),
    )
    operations = row_operations("native", device)
    order = operations.order_look_ups(positions, _BATCH_ROWS)
    places, starts, rows = positions.long(), layout.starts[:-1].long(), table[slots.long()].requires_grad_()
    chosen = slots.long()[places]

    def of_torch(ids: Tensor, rows: Tensor) -> Tensor:
        return torch.nn.functional.embedding_bag(ids, rows, starts, mode="sum", per_sample_weights=layout.scales)

    pooled = of_torch(places, rows)
    return [
        (
            lambda: operations.pool(table, slots, positions, layout),
            lambda: operations.sum_pooled(gradients, positions, _BATCH_ROWS, order, layout),
        ),
        (
            lambda: pool_step_by_step(operations, table, slots, positions, layout),
            lambda: sum_pooled_step_by_step(operations, gradients, positions, _BATCH_ROWS, order, layout),
        ),
        (
            lambda: of_torch(chosen, table),
            lambda: torch.autograd.grad(pooled, rows, gradients, retain_graph=True),
        ),
    ]


def _milliseconds(call: Callable[[], object], device: torch.device) -> float:
    before = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1000 * (time.perf_counter() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="append the JSON line to this file")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: there is no GPU here")
    device = torch.device(arguments.device)
    keep_all_freed_memory()
    torch.set_num_threads(1)
    report = Report("pooling")
    lines, figures = [], []
    for ids, width in ((ids, width) for ids in (1, 10, 100) for width in (16, 64, 128)):
        ways = _ways(ids, width, device)
        for direction, name in enumerate(("forward", "backward")):
            calls = [way[direction] for way in ways]
            rounds = [[_milliseconds(call, device) for call in calls] for _ in range(arguments.runs + 2)][2:]
            times = [median(of_way) for of_way in zip(*rounds, strict=True)]
            ratios = [statistics.median(times[way] / times[0] for times in rounds) for way in (1, 2)]
            lines.append([f"{ids}, {width}, {name}", *(f"{ms:.2f}" for ms in times), *(f"{x:.1f}" for x in ratios)])
            figures.append({"ids": ids, "width": width, "direction": name, "ms": times, "ratios": ratios})
    headings = ["ids of a bag, width", *(f"{way}, ms" for way in _WAYS), "step by step / fused", "torch / fused"]
    where = "one thread" if device.type == "cpu" else torch.cuda.get_device_name(device)
    report.table(f"{_LOOK_UPS} look-ups of {_BATCH_ROWS} rows, {where}", headings, lines)
    report.figures = {"ways": _WAYS, "where": where, "results": figures}
    report.finish(arguments.save)


if __name__ == "__main__":
    main()
