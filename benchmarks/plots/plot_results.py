"""Draw what `python -m benchmarks step` and `python -m benchmarks planner` have saved.

    python benchmarks/plots/plot_results.py results.jsonl --output docs/img

Jobs of several lines of `step` come together, and of the same job the last; of `planner` the last line counts. Makes
lookahead_sweep.svg (samples/s over the look-ahead, a line for each link, and one where trainers have a host each),
step_breakdown.svg (where the time of a step goes) and planner_growth.svg (the planner's speed and memory over the rows
of the tables), as far as the file has their figures. Needs matplotlib: `pip install '.[plot]'`.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
from dark_mode import save_svg
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from saved_results import TRAINERS, Cell, jobs_of, read_lines, sweeps

PARTS = {"compute_share": "compute", "reductions_share": "waiting for sums", "rows_share": "waiting for rows"}
COLOURS = {"compute_share": "#f58518", "reductions_share": "#e45756", "rows_share": "#4c4c4c"}


def draw_lookahead_sweep(jobs: list[Cell]) -> Figure:
    workloads = sweeps(jobs)
    figure, axes = plt.subplots(
        1, len(workloads), figsize=(5 * len(workloads), 3.6), layout="constrained", squeeze=False
    )
    for plot, (workload, links) in zip(axes[0], workloads.items(), strict=True):
        for title, cells in links.items():
            windows = [cell["lookahead"] for cell in cells]
            rates = [cell["samples_per_s"] for cell in cells]
            below = [rate - min(cell["samples_per_s_of_runs"]) for rate, cell in zip(rates, cells, strict=True)]
            above = [max(cell["samples_per_s_of_runs"]) - rate for rate, cell in zip(rates, cells, strict=True)]
            plot.errorbar(windows, rates, [below, above], marker="o", capsize=3, label=title)
        plot.set_xscale("log")
        plot.set_xticks(windows, [str(window) for window in windows])
        plot.minorticks_off()
        plot.set_ylim(bottom=0)
        plot.set_title(f"{workload}, {TRAINERS} trainers")
        plot.set_xlabel("look-ahead, batches")
        plot.set_ylabel("samples/s")
        plot.legend(frameon=False)
    return figure


def draw_step_breakdown(jobs: list[Cell]) -> Figure:
    workloads = sweeps(jobs)
    figure, axes = plt.subplots(
        1, len(workloads), figsize=(6 * len(workloads), 4.2), layout="constrained", squeeze=False
    )
    for plot, (workload, links) in zip(axes[0], workloads.items(), strict=True):
        cells = [cell for link in links.values() for cell in link]
        names = [f"{title}, L = {cell['lookahead']}" for title, link in links.items() for cell in link]
        left = [0.0] * len(cells)
        for part, title in PARTS.items():
            widths = [cell[part] * cell["step_ms"] for cell in cells]
            plot.barh(names, widths, left=left, color=COLOURS[part], label=title)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        plot.invert_yaxis()
        plot.set_title(f"{workload}, {TRAINERS} trainers")
        plot.set_xlabel("ms a step")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(PARTS), frameon=False)
    return figure


def draw_planner_growth(results: list[Cell]) -> Figure:
    figure, (speed, memory) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for planner in dict.fromkeys(result["planner"] for result in results):
        members = sorted(
            (result for result in results if result["planner"] == planner), key=lambda result: result["rows"]
        )
        rows = [result["rows"] for result in members]
        speed.plot(rows, [result["samples_per_s"] for result in members], marker="o", label=planner)
        taken = [(result["state_bytes"] + result["window_bytes"]) / 1e6 for result in members]
        memory.plot(rows, taken, marker="o", label=planner)
    speed.set_ylim(bottom=0)
    speed.set_ylabel("samples/s")
    memory.set_yscale("log")
    memory.set_ylabel("memory, MB")
    for plot in (speed, memory):
        plot.set_xscale("log")
        plot.set_xlabel("rows of all tables")
        plot.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a file that --save has written")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    figures: dict[str, Figure] = {}
    mpl.rcParams["svg.hashsalt"] = "bagpipe"  # the same results give the same files
    if jobs := jobs_of(read_lines(arguments.results, "step")):
        figures |= {"lookahead_sweep": draw_lookahead_sweep(jobs), "step_breakdown": draw_step_breakdown(jobs)}
    swept = [line["sweeps"]["rows"] for line in read_lines(arguments.results, "planner") if "rows" in line["sweeps"]]
    if swept:
        figures["planner_growth"] = draw_planner_growth(swept[-1])
    if not figures:
        raise SystemExit(f"plot_results: {arguments.results} has no line of benchmark step or planner")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        save_svg(figure, arguments.output / f"{name}.svg")


if __name__ == "__main__":
    main()
