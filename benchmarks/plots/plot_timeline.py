"""Draw part of a timeline that `train.trace` wrote.

    python benchmarks/plots/plot_timeline.py trace.json --from-s 3.0 --to-s 3.3 --output docs/timeline.svg

A row for each line of each rank, a bar for each span, coloured by what was done. Short spans that stand alone
are drawn a point wide, so that they are seen. Needs matplotlib: `pip install '.[plot]'`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from dark_mode import save_svg
from matplotlib import pyplot as plt

COLOURS = {
    "plan": "#4c78a8",
    "send": "#9ecae9",
    "fetch": "#54a24b",
    "write back": "#88d27a",
    "barrier": "#a0a0a0",
    "forward, backward": "#f58518",
    "sum row gradients": "#ffbf79",
    "update rows": "#b279a2",
    "dense optimizer": "#d6a5c9",
    "reduce now": "#e45756",
    "reduce later": "#ff9d98",
    "reduce dense": "#a6373b",
    "wait for rows": "#000000",
}
"""Warm colours compute, green moves rows, red waits for other trainers, black (white on dark pages) waits for rows."""

WIDTH_INCHES = 12
LEAST_BAR = 1.8 / (72 * WIDTH_INCHES)
"""Of the time that is drawn: a point or more, whatever room the names take."""

Line = tuple[int, int]


def read_lines(path: Path) -> tuple[dict[Line, str], list[dict[str, Any]]]:
    """Name of each (rank, thread), and the spans."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    ranks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    names = {
        (event["pid"], event["tid"]): f"{ranks[event['pid']]}: {event['args']['name']}"
        for event in events
        if event["name"] == "thread_name"
    }
    return names, [event for event in events if event["ph"] == "X"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--from-s", type=float, default=0.0, metavar="S", help="first moment drawn")
    parser.add_argument("--to-s", type=float, default=float("inf"), metavar="S", help="last moment drawn")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.svg")
    arguments = parser.parse_args()
    names, spans = read_lines(arguments.trace)
    first_us, last_us = arguments.from_s * 1e6, arguments.to_s * 1e6
    shown = [span for span in spans if span["ts"] + span["dur"] > first_us and span["ts"] < last_us]
    if not shown:
        raise SystemExit(f"plot_timeline: no span between {arguments.from_s} s and {arguments.to_s} s")
    lines = [line for line in sorted(names) if any((span["pid"], span["tid"]) == line for span in shown)]
    end_us = min(last_us, max(span["ts"] + span["dur"] for span in shown))
    kinds = [kind for kind in COLOURS if any(span["name"] == kind for span in shown)]
    mpl.rcParams["svg.hashsalt"] = "bagpipe"  # the same trace gives the same file
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 0.6 + 0.45 * len(lines)), layout="constrained")
    # First the short spans as wide as can be seen, then all in their width: on a full line they hide no neighbour.
    for least_us in (LEAST_BAR * (end_us - first_us), 0.0):
        for height, line in enumerate(reversed(lines)):
            for kind in kinds:
                bars = [
                    ((span["ts"] - first_us) / 1e3, max(span["dur"], least_us) / 1e3)
                    for span in shown
                    if (span["pid"], span["tid"]) == line and span["name"] == kind
                    if least_us == 0 or span["dur"] < least_us
                ]
                axes.broken_barh(bars, (height - 0.4, 0.8), facecolors=COLOURS[kind], linewidth=0)
    axes.set_yticks(range(len(lines)), [names[line] for line in reversed(lines)])
    axes.set_xlim(0, (end_us - first_us) / 1e3)
    axes.set_xlabel("ms")
    handles = [mpl.patches.Patch(color=COLOURS[kind], label=kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside upper center", ncols=7, frameon=False, fontsize="small")
    save_svg(figure, arguments.output)


if __name__ == "__main__":
    main()
