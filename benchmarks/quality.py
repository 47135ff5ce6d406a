"""`python -m benchmarks quality`: what models learn in one epoch, beside plain PyTorch and torch-rechub.

Every contender trains on the same shards in the same order with the same seeds, one process and one thread each.
`nn.EmbeddingBag` has the very same model, first weights and optimizers; torch-rechub's models have their own.
"""

import argparse
import importlib.util
from dataclasses import dataclass

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.report import Report
from benchmarks.learning import Figures, over_seeds, score_cells, train
from benchmarks.peers.workloads import real_workload

_DEEP = ("model.deep_mlp=[256,128]",)
MODELS = {
    "dlrm": (),
    "wide_deep": _DEEP,
    "deepfm": _DEEP,
    "dcn": _DEEP,
    "dcn_v2": _DEEP,
    "dlrm_dcnv2": ("model.top_mlp=[256,128]", "model.cross_rank=64"),
}
"""The models, and settings of theirs that all contenders share: widths that fit about 100,000 rows."""
SETTINGS = (
    *("optimizer.rows=adam", "optimizer.rows_lr=0.001", "optimizer.dense=Adam", "optimizer.dense_lr=0.001"),
    *("tables.initial_bound=0.001", "train.batch_size=256", "kernels.linear=torch"),
)
"""What all runs share, beside what the command line adds."""
_RECHUB_MODELS = ("wide_deep", "deepfm", "dcn", "dcn_v2")
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
    "bagpipe": Contender("bagpipe_hpc", "", tuple(MODELS)),
    "embedding_bag": Contender("nn.EmbeddingBag", "embedding_bag.py", tuple(MODELS)),
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
    left_out = [name for name in arguments.contenders if not CONTENDERS[name].is_installed()]
    for name in left_out:
        print(f"left out: {CONTENDERS[name].name}: {CONTENDERS[name].package} is not installed", flush=True)
    report = Report("quality", {"settings": settings, "seeds": len(seeds), "left_out": left_out, "results": []})
    table = []
    for model in arguments.models:
        named = [name for name in arguments.contenders if model in CONTENDERS[name].models and name not in left_out]
        found: dict[str, list[Figures]] = {name: [] for name in named}
        for seed in seeds:
            for name in named:
                overrides = [f"model.name={model}", f"train.seed={seed}", *MODELS[model], *settings]
                found[name].append(train(overrides, CONTENDERS[name].program))
        for name in named:
            figures = over_seeds(found[name])
            report.figures["results"].append({"model": model, "contender": name, **figures})
            table.append([model, CONTENDERS[name].name, *score_cells(figures)])
            print(" | ".join(table[-1]), flush=True)
    report.table("One epoch", ["model", "by", "AUC", "log loss"], table)
    return report
