"""Runs of one process whose evaluation counts, and what several seeds of them say: for `quality` and `search`."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.telemetry.metrics_file import SUMMARY_NAME
from bagpipe_hpc.tools.conditions import REPOSITORY

PROGRAMS = REPOSITORY / "benchmarks" / "peers" / "programs"
RUN_SETTINGS = ("train.device=cpu", "train.threads=1", "train.checkpoint_at_end=false")
"""What each run has, whatever is compared; the peers' programs have no GPU."""
_TIMEOUT_S = 3600.0

Figures = Mapping[str, float]
"""One run's `auc` and `log_loss`."""


def train(overrides: Sequence[str], program: str = "") -> Figures:
    """Train with one process and one thread, and evaluate.

    Args:
        overrides: settings, as for `bagpipe train`; without an output folder and `RUN_SETTINGS`.
        program: file in `peers/programs`; empty for `bagpipe train` on one rank.

    Raises:
        ConfigError: the run fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, output = Path(folder) / "run.toml", Path(folder) / "output"
        config.touch()
        settings = [str(config), *overrides, *RUN_SETTINGS, f"train.output={output}"]
        if program:
            printed = _run([sys.executable, str(PROGRAMS / program), *settings])
            found: Figures = json.loads(printed.splitlines()[-1])
            return found
        _run([sys.executable, "-m", "bagpipe_hpc", "train", *settings])
        summary = json.loads((output / SUMMARY_NAME).read_text(encoding="utf-8"))
        scores: Figures = summary["evaluations"][-1]
        return scores


def _run(command: list[str]) -> str:
    """What a program prints.

    Raises:
        ConfigError: it fails, or takes too long.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd=REPOSITORY, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{' '.join(command)}: has not ended after {_TIMEOUT_S:.0f} s; use fewer rows") from error
    if done.returncode:
        raise ConfigError(f"{' '.join(command)}: ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def over_seeds(found: Sequence[Figures]) -> dict[str, Any]:
    """Means of the scores over seeds, and their standard deviations, `..._spread`: None where there is one seed."""
    figures: dict[str, Any] = {}
    for name in ("auc", "log_loss"):
        values = [float(one[name]) for one in found]
        figures[name] = statistics.mean(values)
        figures[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
    return figures


def score_cells(figures: Mapping[str, Any]) -> list[str]:
    """AUC and log loss of `over_seeds`, each as `mean ± standard deviation`, or the only one."""
    spreads = {name: figures[f"{name}_spread"] for name in ("auc", "log_loss")}
    return [f"{figures[name]:.4f}" + ("" if spread is None else f" ± {spread:.4f}") for name, spread in spreads.items()]
