"""Draw some steps of a trainer on a GPU, from a timeline that `python -m benchmarks gpu_steps --timelines DIR` kept.

    python -m benchmarks.plots.plot_gpu_steps embedding_bound.json --first 3 --steps 2 --output docs/img/gpu_steps.svg

Above what the host's threads did in torch and CUDA, below what the GPU did in each stream, coloured by kinds. Short
bars are drawn a point wide, so that they are seen. Needs matplotlib: `pip install '.[plot]'`.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.gpu_steps.timeline import COPIES, GpuWork, gpu_work
from benchmarks.plots.dark_mode import save_svg

COLOURS = {
    "torch and CUDA on the host": "#9ecae9",
    "products": "#f58518",
    "row operations": "#b279a2",
    "sorting of look-ups": "#ffbf79",
    "copies to the GPU": "#54a24b",
    "copies from the GPU": "#88d27a",
    "looks for NaN": "#e45756",
    "rest": "#a0a0a0",
}
WIDTH_INCHES = 12
LEAST_BAR = 1.8 / (72 * WIDTH_INCHES)
"""Of the time that is drawn: a point or more."""

Bar = tuple[float, float, str]
"""Begin, end and kind."""


def host_bars(events: list[dict[str, Any]], thread: int, category: str) -> list[Bar]:
    """What a thread did, without what was part of something else."""
    found: list[Bar] = []
    own = (event for event in events if event["tid"] == thread and event["cat"] == category)
    for event in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
        if not found or event["ts"] >= found[-1][1]:
            found.append((event["ts"], event["ts"] + event["dur"], "torch and CUDA on the host"))
    return found


def gpu_bars(work: list[GpuWork], *, is_computes: bool) -> list[Bar]:
    """What was done in the compute thread's stream, or in the others."""
    first = min(one.stream for one in work)
    own = [one for one in work if (one.stream == first) == is_computes]
    names = dict.fromkeys(COPIES.values(), "") | {name: name for name in COLOURS}
    return [(one.begin_us, one.end_us, names[one.kind] or "rest") for one in own]


def lines_of(events: list[dict[str, Any]], timeline: dict[str, Any]) -> dict[str, list[Bar]]:
    """The bars of each line, by its name."""
    compute = step_marks(events)[0]["tid"]
    in_torch = Counter(event["tid"] for event in events if event["cat"] == "cpu_op")
    in_cuda = Counter(event["tid"] for event in events if event["cat"] == "cuda_runtime")
    (autograd, _), *_ = (pair for pair in in_torch.most_common() if pair[0] != compute)
    (mover, _), *_ = (pair for pair in in_cuda.most_common() if pair[0] not in in_torch)
    lines = {
        "compute thread": host_bars(events, compute, "cpu_op"),
        "autograd's thread": host_bars(events, autograd, "cpu_op"),
        "mover, calls of CUDA": host_bars(events, mover, "cuda_runtime"),
    }
    work = gpu_work(timeline)
    lines["GPU, stream of compute"] = gpu_bars(work, is_computes=True)
    lines["GPU, stream of the mover"] = gpu_bars(work, is_computes=False)
    return lines


def step_marks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the dense optimizer begins in each step."""
    marks = [event for event in events if event["cat"] == "user_annotation" and "Optimizer.step" in event["name"]]
    return sorted(marks, key=lambda event: event["ts"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline", type=Path)
    parser.add_argument("--first", type=int, default=1, metavar="N", help="first step that is drawn (default: 1)")
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="how many (default: 2)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.svg")
    arguments = parser.parse_args()
    timeline = json.loads(arguments.timeline.read_text(encoding="utf-8"))
    events = [event for event in timeline["traceEvents"] if event.get("ph") == "X"]
    marks = [event["ts"] for event in step_marks(events)]
    if arguments.first < 1 or arguments.first + arguments.steps > len(marks):
        raise SystemExit(f"plot_gpu_steps: the timeline has {len(marks) - 1} whole steps")
    begin, end = marks[arguments.first - 1], marks[arguments.first + arguments.steps - 1]
    lines = lines_of(events, timeline)
    mpl.rcParams["svg.hashsalt"] = "bagpipe"  # the same timeline gives the same file
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 0.6 + 0.45 * len(lines)), layout="constrained")
    shown = set()
    for height, bars in enumerate(reversed(lines.values())):
        for kind, colour in COLOURS.items():
            own = [(first, max(last - first, LEAST_BAR * (end - begin))) for first, last, of in bars if of == kind]
            own = [((first - begin) / 1e3, width / 1e3) for first, width in own if begin <= first < end]
            axes.broken_barh(own, (height - 0.4, 0.8), facecolors=colour, linewidth=0)
            shown |= {kind} if own else set()
    for mark in marks[arguments.first - 1 : arguments.first + arguments.steps]:
        axes.axvline((mark - begin) / 1e3, color="#000000", linewidth=0.5)
    axes.set_yticks(range(len(lines)), list(reversed(lines)))
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.set_xlabel("ms")
    handles = [mpl.patches.Patch(color=COLOURS[kind], label=kind) for kind in COLOURS if kind in shown]
    figure.legend(handles=handles, loc="outside upper center", ncols=8, frameon=False, fontsize="small")
    save_svg(figure, arguments.output)


if __name__ == "__main__":
    main()
