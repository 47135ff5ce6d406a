"""Nodes of a graph train to the bits of the reference, whose neighbours are drawn by the same numbers."""

import shutil
from pathlib import Path

import pytest

from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.tools.exporting.source import open_source
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import LINEAR, PLAIN, RunRanks, story, train
from tests.graphs import write_graph_data

CONFIG = """
[data]
path = "{data}"
block_rows = 16
[graph]
fan_outs = [3, 2]
[features]
pooling = "sequence"
[model]
name = "graphsage"
embedding_dim = 5
[train]
batch_size = 22  # the last of 5 batches has 2 samples
epochs = 2
timeout_s = 60.0
[kernels]
linear = "{linear}"
"""
CASES: dict[str, list[str]] = {
    "sgd": ["optimizer.rows=sgd"],
    "adagrad, in lanes": ["optimizer.rows=rowwise_adagrad", "data.lanes=2", "data.block_rows=5"],
    "adam": ["optimizer.rows=adam", "optimizer.dense=Adam"],
    "hops pooled for another model": [
        *("model.name=wide_deep", "model.deep_mlp=[6]", "features.pooling=mean", "graph.fan_outs=[2,2,2]"),
    ],
}
FURTHER = {name: [f"optimizer.rows={name}"] for name in ROW_OPTIMIZERS.entries}
"""GraphSAGE with each row optimizer."""
POLICIES = {
    name: [f"policy.name={name}", *more]
    for name, more in {"none": [], "scratchpipe": [], "herald": [], "hotline": ["policy.hot_rows=40"]}.items()
}
WINDOWS = {
    "sgd": ["lookahead.batches=1", "cache.sharing=replicated"],
    "adagrad, in lanes": ["lookahead.batches=4", "lookahead.group=2", "cache.sharing=home", "train.dense_sums=mpi"],
    "adam": ["lookahead.batches=40", "cache.sharing=replicated"],
}


class Runs:
    """Runs of all cases on one graph."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "graph.toml"
        write_graph_data(folder / "data", 120, test_fraction=0.25, rows_per_shard=40)
        self.config.write_text(CONFIG.format(data=folder / "data", linear=LINEAR))
        self._references: set[tuple[str, int]] = set()

    def settings(self, case: str, output: Path, *more: str) -> list[str]:
        """Those of one run."""
        own = {**FURTHER, **POLICIES, **CASES}[case]
        graphsage = [] if any("model.name" in one for one in own) else ["model.hidden=6"]
        return [f"train.output={output}", *own, *graphsage, *more]

    def references(self, cases: list[str], slices: int) -> dict[str, Path]:
        """The references' outputs; those that are not there yet are trained."""
        outputs = {case: self.folder / f"reference-{slices}-{case}" for case in cases}
        missing = [case for case in cases if (case, slices) not in self._references]
        more = [PLAIN, f"train.reference_slices={slices}"]
        if missing:
            self.train(1, [self.settings(case, outputs[case], *more) for case in missing])
            self._references |= {(case, slices) for case in missing}
        return outputs

    def train(self, ranks: int, runs: list[list[str]]) -> None:
        """Train one after the other on so many ranks."""
        from tests.ranks import run_ranks

        train(run_ranks, ranks, self.config, runs, self.folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("graph"))


@pytest.mark.parametrize(
    ("servers", "trainers", "cases"),
    [
        pytest.param(1, 2, list(CASES), id="two trainers"),
        pytest.param(2, 1, list(CASES), id="one trainer", marks=pytest.mark.slow),
        pytest.param(2, 2, list(FURTHER), id="each row optimizer", marks=pytest.mark.slow),
        pytest.param(1, 2, list(POLICIES), id="other policies", marks=pytest.mark.slow),
    ],
)
def test_a_graph_trains_to_the_references_bits(
    servers: int, trainers: int, cases: list[str], runs: Runs, tmp_path: Path
) -> None:
    references = runs.references(cases, trainers)
    more = [f"roles.servers={servers}", "debug.verify_rows=true"]
    outputs = {case: tmp_path / case for case in cases}
    commands = [runs.settings(case, outputs[case], *more, *WINDOWS.get(case, [])) for case in cases]
    runs.train(1 + servers + trainers, commands)
    found = {case: compare(references[case], outputs[case]).largest() for case in cases}
    assert found == dict.fromkeys(cases, 0.0)
    for case in cases:
        assert story(outputs[case]) == story(references[case])


@pytest.mark.slow
def test_a_graph_goes_on_within_an_epoch(runs: Runs, tmp_path: Path) -> None:
    """With as many trainers to the same bits, with another number of them close by."""
    reference = runs.references(["adam"], 2)["adam"]
    stopped, others = tmp_path / "stopped", tmp_path / "others"
    runs.train(4, [runs.settings("adam", stopped, "roles.servers=1", "train.max_steps=7")])
    assert load_checkpoint(stopped).manifest.epoch_step == 2
    shutil.copytree(stopped, others)
    resumed = ["roles.servers=1", "train.resume=auto", "lookahead.batches=3"]
    runs.train(4, [runs.settings("adam", stopped, *resumed)])
    assert compare(reference, stopped).largest() == 0.0
    runs.train(3, [runs.settings("adam", others, *resumed)])
    assert compare(reference, others).largest() < 1e-3


@pytest.mark.slow
def test_another_graph_and_other_draws_are_another_training(runs: Runs, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Both are refused by name where a run goes on, and a checkpoint is scored with its own draws."""
    output = tmp_path / "run"
    runs.train(1, [runs.settings("sgd", output, "train.max_steps=3")])
    write_graph_data(tmp_path / "other", 120, seed=2, test_fraction=0.25)
    command = ["python", "-m", "bagpipe_hpc", "train", str(runs.config), *runs.settings("sgd", output)]
    for change, said in (
        (f"data.path={tmp_path / 'other'}", "data.path, digest of the training shards"),
        ("graph.fan_outs=[3,3]", "graph.fan_outs: [3, 2] then, [3, 3] now"),
    ):
        refused = run_ranks(1, *command, "train.resume=auto", change)
        assert refused.returncode != 0
        assert said in refused.stderr
    scored = run_ranks(1, "python", "-m", "bagpipe_hpc", "evaluate", str(output))
    assert scored.returncode == 0, scored.stderr
    with pytest.raises(ConfigError, match="holds a graph, whose nodes' neighbours are drawn in training"):
        open_source(load_checkpoint(output), None)
    told = [event for event in story(output) if event[0] == "evaluation"]
    assert f"{told[-1][-1]:.5f}" in scored.stdout + scored.stderr
