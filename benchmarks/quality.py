"""`python -m benchmarks quality`: what models learn in one epoch, beside plain PyTorch and torch-rechub.

Every contender trains on the same shards in the same order with the same seeds, one process and one thread each.
`nn.EmbeddingBag` has the very same model, first weights and optimizers; torch-rechub's models have their own.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.telemetry.metrics_file import SUMMARY_NAME
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report
from benchmarks.peers.workloads import real_workload

MODELS = ("dlrm", "wide_deep", "deepfm", "dcn", "dcn_v2", "dlrm_dcnv2")
PROGRAMS = REPOSITORY / "benchmarks" / "peers" / "programs"
SETTINGS = (
    *("optimizer.rows=adam", "optimizer.rows_lr=0.001", "optimizer.dense=Adam", "optimizer.dense_lr=0.001"),
    *("train.batch_size=256", "train.threads=1", "train.checkpoint_at_end=false", "kernels.linear=torch"),
)
"""What all runs share, beside what the command line adds."""
_RECHUB_MODELS = ("wide_deep", "deepfm", "dcn", "dcn_v2")
_TIMEOUT_S = 3600.0
_GENERATED_ROWS = 20_000


@dataclass(frozen=True)
class Contender:
    """Who trains.

    Attributes:
        name: in tables.
        program: file in `peers/programs`; empty for `bagpipe train` on one rank.
        models: that it has.
        package: that it needs beside this project's; left out where it is not there.
    """

    name: str
    program: str
    models: tuple[str, ...]
    package: str = "torch"

    def is_installed(self) -> bool:
        """Whether this Python has its package."""
        return importlib.util.find_spec(self.package) is not None


CONTENDERS = {
    "bagpipe": Contender("bagpipe_hpc", "", MODELS),
    "embedding_bag": Contender("nn.EmbeddingBag", "embedding_bag.py", MODELS),
    "rechub": Contender("torch-rechub", "rechub_ranking.py", _RECHUB_MODELS, "torch_rechub"),
}


def run(arguments: argparse.Namespace) -> Report:
    """Train; arguments: `shards`, `models`, `contenders`, `seeds`, `settings`, `quick`.

    Raises:
        ConfigError: the shards have no test rows, or a run fails.
    """
    shards = arguments.shards or real_workload(None, _GENERATED_ROWS, 0).shards
    if not load_manifest(shards).rows("test"):
        raise ConfigError(f"--shards {shards}: has no test rows; prepare it with --test-fraction")
    settings = [*SETTINGS, f"data.path={shards}", *arguments.settings]
    seeds = range(1, (2 if arguments.quick else arguments.seeds) + 1)
    report = Report("quality", {"settings": settings, "seeds": len(seeds), "results": []})
    table = []
    for model in arguments.models:
        for name in arguments.contenders:
            contender = CONTENDERS[name]
            if model in contender.models and contender.is_installed():
                found = [_train(contender, [f"model.name={model}", f"train.seed={seed}", *settings]) for seed in seeds]
                figures = _summary(found)
                report.figures["results"].append({"model": model, "contender": name, **figures})
                table.append([model, contender.name, *_cells(figures)])
                print(" | ".join(table[-1]), flush=True)
    report.table("One epoch", ["model", "by", "AUC", "log loss", "samples/s"], table)
    return report


def _train(contender: Contender, overrides: list[str]) -> Mapping[str, float]:
    """One run's `auc`, `log_loss` and `samples_per_s`."""
    with tempfile.TemporaryDirectory() as folder:
        config, output = Path(folder) / "run.toml", Path(folder) / "output"
        config.touch()
        if not contender.program:
            command = [sys.executable, "-m", "bagpipe_hpc", "train", str(config), *overrides, f"train.output={output}"]
            _run(command)
            summary = json.loads((output / SUMMARY_NAME).read_text(encoding="utf-8"))
            return {**summary["evaluations"][-1], "samples_per_s": summary["samples_per_s"]}
        printed = _run([sys.executable, str(PROGRAMS / contender.program), str(config), *overrides])
        found: dict[str, float] = json.loads(printed.splitlines()[-1])
        return found


def _run(command: list[str]) -> str:
    """What a program prints.

    Raises:
        ConfigError: it fails.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd=REPOSITORY, env=environment
    )
    if done.returncode:
        raise ConfigError(f"{' '.join(command)}: ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def _summary(found: list[Mapping[str, float]]) -> dict[str, Any]:
    """Means and standard deviations over the seeds; the median of the rates."""
    figures: dict[str, Any] = {}
    for name in ("auc", "log_loss"):
        values = [float(one[name]) for one in found]
        figures[name] = statistics.mean(values)
        figures[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else 0.0
    figures["samples_per_s"] = statistics.median(float(one["samples_per_s"]) for one in found)
    return figures


def _cells(figures: Mapping[str, Any]) -> list[str]:
    scores = [f"{figures[name]:.4f} ± {figures[f'{name}_spread']:.4f}" for name in ("auc", "log_loss")]
    return [*scores, f"{figures['samples_per_s']:,.0f}"]
