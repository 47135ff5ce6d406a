"""Samples per second of whole training jobs on this machine, and where a step's time goes, for several look-aheads.

    python benchmarks/step_time.py build/quickstart/shards --lookahead 1 10 40

Starts the real job (one oracle, two servers, two trainers) through scripts/run_ranks.sh, once for each look-ahead in
turn, several times over, and reads the `summary.json` of each run; medians of the runs count. Without a shard directory
it generates and prepares 200,000 rows below build/. A look-ahead of 1 fetches every row of a batch before it and writes
it back after it: what plain synchronous training with remote rows does. On a machine that others use, --quiet-s waits
before each run until the cores are idle, the share of the cores that others took during a run is reported with it, and
runs in which it was above --others-at-most are listed but do not count.
The last line is one JSON object.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bagpipe_hpc.bench.conditions import REPOSITORY, conditions
from bagpipe_hpc.bench.other_load import OtherLoad, wait_for_quiet
from bagpipe_hpc.config_file import load_config

GENERATED_ROWS = 200_000


def prepare_generated(folder: Path) -> Path:
    """Shards of generated clicks, made unless an earlier run has."""
    clicks, shards = folder / "clicks.tsv", folder / "shards"
    if not (shards / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        bagpipe = [sys.executable, "-m", "bagpipe_hpc"]
        subprocess.run([*bagpipe, "generate", "--rows", str(GENERATED_ROWS), "--output", str(clicks)], check=True)
        subprocess.run([*bagpipe, "prepare", "--input", str(clicks), "--output", str(shards)], check=True)
        clicks.unlink()
    return shards


def run_job(ranks: int, config: Path, overrides: list[str]) -> dict[str, Any]:
    """Train once and return the run's summary.

    Raises:
        SystemExit: the job failed; what it printed is shown.
    """
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with tempfile.TemporaryDirectory() as output:
        command = [
            str(REPOSITORY / "scripts" / "run_ranks.sh"),
            str(ranks),
            sys.executable,
            "-m",
            "bagpipe_hpc",
            "train",
        ]
        command += [str(config), *overrides, f"train.output={output}/run", "train.overwrite=true"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            sys.exit(f"{result.stdout}{result.stderr}\nstep_time: the job ended with status {result.returncode}")
        summary: dict[str, Any] = json.loads(Path(output, "run", "summary.json").read_text(encoding="utf-8"))
        return summary


def figures_of(summary: dict[str, Any]) -> dict[str, float]:
    """The figures of a run; those of trainers are means over them."""
    trainers = summary["trainers"]
    mean = {key: statistics.fmean(trainer[key] for trainer in trainers) for key in trainers[0]}
    fetched = sum(trainer["rows_fetched"] for trainer in trainers)
    return {
        "samples_per_s": summary["samples_per_s"],
        "step_ms": mean["total_ms"],
        "rows_share": mean["wait_rows_ms"] / mean["total_ms"],
        "reductions_share": mean["wait_reductions_ms"] / mean["total_ms"],
        "compute_share": mean["compute_ms"] / mean["total_ms"],
        "rows_fetched": fetched,
        "hit_rate": summary["hit_rate"],
    }


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Median of each figure."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def print_table(results: dict[int, dict[str, float]], spreads: dict[int, list[float]]) -> None:
    baseline = results.get(1)
    print("   L   samples/s  (lowest - highest)   step ms  compute  reductions   rows  fetched/step   hits  to L = 1")
    for lookahead, figures in results.items():
        ratio = f"{figures['samples_per_s'] / baseline['samples_per_s']:8.2f}" if baseline else "       -"
        low, high = min(spreads[lookahead]), max(spreads[lookahead])
        print(
            f"{lookahead:4}  {figures['samples_per_s']:10,.0f}  ({low:7,.0f} - {high:7,.0f})  "
            f"{figures['step_ms']:8.2f}  {figures['compute_share']:7.1%}  {figures['reductions_share']:10.1%}  "
            f"{figures['rows_share']:5.1%}  {figures['rows_fetched']:12,.0f}  {figures['hit_rate']:5.1%}  {ratio}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path, nargs="?", help="shard directory (default: 200,000 generated rows)")
    parser.add_argument("--lookahead", type=int, nargs="+", metavar="L", help="default: 1 and the configuration's")
    parser.add_argument("--runs", type=int, default=3, help="runs of each look-ahead (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the rows in a run (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=5, help="MPI ranks (default: %(default)s)")
    parser.add_argument("--config", type=Path, default=REPOSITORY / "configs" / "quickstart.toml")
    parser.add_argument(
        "--quiet-s", type=float, default=0.0, metavar="S", help="wait up to S seconds for idle cores before each run"
    )
    parser.add_argument(
        "--others-at-most",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of the cores, in runs that count (default: 1)",
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="section.field=value", help="further settings, as for bagpipe train"
    )
    arguments = parser.parse_args()
    shards = arguments.shards or prepare_generated(REPOSITORY / "build" / "step_time")
    lookaheads = arguments.lookahead or sorted({1, load_config(arguments.config, arguments.set).lookahead.batches})
    settings = [f"data.path={shards}", "data.verify=quick", "train.evaluate=false", f"train.epochs={arguments.epochs}"]
    settings += arguments.set
    runs: dict[int, list[dict[str, float]]] = {lookahead: [] for lookahead in lookaheads}
    for number in range(arguments.runs):
        # In turn and back again, so that a change of the machine's load meets all of them alike.
        for lookahead in lookaheads if number % 2 == 0 else reversed(lookaheads):
            window = [f"lookahead.batches={lookahead}", "lookahead.group=0"]
            if arguments.quiet_s and not wait_for_quiet(arguments.quiet_s):
                print("step_time: others keep the cores busy; measuring all the same", file=sys.stderr)
            with OtherLoad() as others:
                summary = run_job(arguments.ranks, arguments.config, settings + window)
            runs[lookahead].append(figures_of(summary) | {"others_share": others.share})
            print(
                f"run {number + 1}, L = {lookahead}: {summary['samples_per_s']:,.0f} samples/s, "
                f"others took {others.share:.0%} of the cores",
                file=sys.stderr,
                flush=True,
            )
    counted = {
        lookahead: [run for run in figures if run["others_share"] <= arguments.others_at_most]
        for lookahead, figures in runs.items()
    }
    if disturbed := [lookahead for lookahead, figures in counted.items() if not figures]:
        sys.exit(f"step_time: others took too much of the cores in every run with L = {disturbed}; try again later")
    results = {lookahead: medians(figures) for lookahead, figures in counted.items()}
    spreads = {lookahead: [run["samples_per_s"] for run in figures] for lookahead, figures in counted.items()}
    print_table(results, spreads)
    facts = {"ranks": arguments.ranks, "config": arguments.config.name, "set": arguments.set, "runs": arguments.runs}
    facts |= {"others_at_most": arguments.others_at_most, "epochs": arguments.epochs}
    windows = [
        {"lookahead_batches": lookahead}
        | {key: round(value, 4) for key, value in figures.items()}
        | {"samples_per_s_of_runs": [round(run["samples_per_s"]) for run in runs[lookahead]]}
        | {"others_share_of_runs": [round(run["others_share"], 2) for run in runs[lookahead]]}
        for lookahead, figures in results.items()
    ]
    print(json.dumps(conditions() | facts | {"windows": windows}))


if __name__ == "__main__":
    main()
