"""Every kind of feature trains to the bits of the reference: bags, means, weights, sequences, shared tables, labels."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.manifest import FeatureInfo, TableInfo
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import LINEAR, PLAIN, story, train
from tests.ragged_shards import write_ragged

CONFIG = """
[data]
path = "given by each run"
block_rows = 16
[model]
embedding_dim = 8
[optimizer]
rows_lr = 0.05
dense = "Adam"
[train]
batch_size = 22  # the last of 5 batches has 2 samples, so that one of three slices is empty
epochs = 2
log_every_steps = 3
timeout_s = 60.0
"""
DLRM = ["model.bottom_mlp=[16]", "model.top_mlp=[16]", f"kernels.linear={LINEAR}"]
SEQUENCES = ["model.name=tests.end_to_end.sequence_model:GatedSequences", "kernels.linear=torch"]
DIN = ["model.name=din", 'model.attention={ history = "item" }', f"kernels.linear={LINEAR}"]
WIDE_DEEP = ["model.name=wide_deep", "model.deep_mlp=[16]", f"kernels.linear={LINEAR}"]
FEW_ROWS = (TableInfo("user", 1), TableInfo("item", 2), TableInfo("genre", 1))
BAGS_ALONE = (
    FeatureInfo("history", "item", ragged=True, longest=6),
    FeatureInfo("genres", "genre", ragged=True, weighted=True, longest=4),
    FeatureInfo("users", "user", ragged=True, weighted=True, longest=9),
)
STOPPED = "sequences, two labels, weights of samples"
SEVERAL_WIDTHS = "several widths, one of a sequence"
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sums, of weighted ids too": ({}, [*DLRM, "optimizer.rows=sgd", "optimizer.dense=SGD"]),
    "means, of the last ids": (
        {"features": BAGS_ALONE},
        [
            *(*DLRM, "optimizer.rows=adagrad", 'features.pooling="mean"', "features.longest_of={ history = 3 }"),
            *("data.lanes=2", "data.block_rows=5"),
        ],
    ),
    STOPPED: (
        {"labels": ("click", "sale"), "weighted_samples": True},
        [
            *(*SEQUENCES, "optimizer.rows=rowwise_adagrad", 'features.pooling_of={ history = "sequence" }'),
            *("data.lanes=3", "data.block_rows=3"),
        ],
    ),
    "a sequence with weights": (
        {"dense_features": 0},
        [*SEQUENCES, "optimizer.rows=adam", 'features.pooling_of={ genres = "sequence", history = "mean" }'],
    ),
    "a sequence with weights, in two micro-batches": (
        {"weighted_samples": True},
        [
            *(*SEQUENCES, "optimizer.rows=adam", 'features.pooling_of={ genres = "sequence", history = "mean" }'),
            *("policy.name=hotline", "policy.hot_rows=60", "policy.learning_batches=1", "policy.refresh_batches=2"),
            *("cache.sharing=replicated", "train.checkpoint_every_steps=7"),
        ],
    ),
    "the same ids everywhere, an unused feature, no dense ones": (
        {"tables": FEW_ROWS, "unused": ("genres",), "dense_features": 0},
        [*DLRM, "optimizer.rows=adam"],
    ),
    SEVERAL_WIDTHS: (
        {"labels": ("click", "sale")},
        [
            *DIN,
            "optimizer.rows=adam",
            'features.pooling_of={ history = "sequence" }',
            "model.embedding_dim_of={ user = 3, genre = 16 }",
        ],
    ),
    "several widths, one number among them": (
        {"features": BAGS_ALONE, "weighted_samples": True},
        [*WIDE_DEEP, "optimizer.rows=rowwise_adam", "model.embedding_dim_of={ item = 2, user = 5 }"],
    ),
}
"""Of each kind the shards, as arguments of `write_ragged`, and the settings."""
HEART = ["means, of the last ids", "the same ids everywhere, an unused feature, no dense ones", STOPPED, SEVERAL_WIDTHS]
HEART += ["a sequence with weights, in two micro-batches"]
"""What `make test` trains."""
REST = [name for name in CASES if name not in HEART]


class Runs:
    """Runs of all cases on one set of shards each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tiny.toml"
        self.config.write_text(CONFIG)
        self._references: set[tuple[str, int]] = set()
        for number, (shards, _) in enumerate(CASES.values()):
            write_ragged(folder / f"shards-{number}", seed=number, samples=90, **shards)

    def settings(self, case: str, output: Path, *more: str) -> list[str]:
        """Those of one run; what a case has itself comes once."""
        shards, own = self.folder / f"shards-{list(CASES).index(case)}", CASES[case][1]
        return [f"data.path={shards}", f"train.output={output}", *own, *(other for other in more if other not in own)]

    def reference(self, case: str, slices: int) -> Path:
        """The reference's output; with it all cases with so many slices are trained, or first those of `make test`."""
        outputs = {name: self.folder / f"reference-{slices}-{number}" for number, name in enumerate(CASES)}
        missing = [name for name in (HEART if case in HEART else CASES) if (name, slices) not in self._references]
        if missing:
            more = [PLAIN, f"train.reference_slices={slices}"]
            self.train(1, [self.settings(name, outputs[name], *more) for name in missing])
            self._references |= {(name, slices) for name in missing}
        return outputs[case]

    def train(self, ranks: int, runs: list[list[str]], *more: str) -> None:
        """Train one after the other on so many ranks."""
        from tests.ranks import run_ranks

        train(run_ranks, ranks, self.config, runs, self.folder, *more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("features"))


def evaluations(output: Path) -> list[tuple[object, ...]]:
    """What a run tells of its evaluations; where it reports progress depends on its checkpoints."""
    return [event for event in story(output) if event[0] == "evaluation"]


PLAIN_ALONE = ["lookahead.batches=1", "lookahead.group=0", PLAIN]
NEAR_AND_FAR = ["lookahead.batches=40", "lookahead.group=7", "debug.verify_rows=true", "train.checkpoint_every_steps=7"]
TRANSFERRED = ["lookahead.batches=1", "lookahead.group=0", "roles.same_host=transfers"]
TWO_HOSTS = (0, 0, 2, 0, 2)
"""Of each rank the number of its host."""
FIXED_ORDER = ["lookahead.batches=4", "lookahead.group=2", "train.deterministic=true"]


@pytest.mark.parametrize(
    ("cases", "servers", "trainers", "settings", "hosts"),
    [
        pytest.param(HEART, 2, 2, NEAR_AND_FAR, TWO_HOSTS, id="two trainers"),
        pytest.param(REST, 2, 2, NEAR_AND_FAR, TWO_HOSTS, id="two trainers, the rest", marks=pytest.mark.slow),
        pytest.param([*CASES][::2], 2, 2, PLAIN_ALONE, (), id="two without native code", marks=pytest.mark.slow),
        pytest.param([*CASES][1::2], 1, 1, TRANSFERRED, (), id="one trainer", marks=pytest.mark.slow),
        pytest.param([*CASES], 1, 3, FIXED_ORDER, (), id="three trainers", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_feature_equals_the_reference(
    cases: list[str],
    servers: int,
    trainers: int,
    settings: list[str],
    hosts: tuple[int, ...],
    runs: Runs,
    tmp_path: Path,
) -> None:
    """Bit for bit, with the same evaluations."""
    outputs = {case: tmp_path / f"run-{number}" for number, case in enumerate(cases)}
    more = [f"roles.servers={servers}", *settings]
    commands = [runs.settings(case, output, *more) for case, output in outputs.items()]
    runs.train(1 + servers + trainers, commands, *(["--hosts", *map(str, hosts)] if hosts else []))
    found = {case: compare(runs.reference(case, trainers), output).largest() for case, output in outputs.items()}
    assert found == dict.fromkeys(cases, 0.0)
    for case, output in outputs.items():
        assert evaluations(output) == evaluations(runs.reference(case, trainers)) != []


@pytest.mark.slow
@pytest.mark.parametrize("case", [STOPPED, SEVERAL_WIDTHS])
def test_bags_go_on_with_other_servers_and_trainers(case: str, runs: Runs, tmp_path: Path) -> None:
    """From an increment; with as many trainers to the same bits, with another number of them close by."""
    stopped, others = tmp_path / "stopped", tmp_path / "others"
    increments = ["train.checkpoint_every_steps=2", "train.full_checkpoint_every=2"]
    runs.train(5, [runs.settings(case, stopped, "roles.servers=2", "train.max_steps=4", *increments)])
    assert load_checkpoint(stopped).manifest.base is not None
    shutil.copytree(stopped, others)
    resumed = ["roles.servers=1", "tables.placement=by_table", "train.resume=auto"]
    runs.train(4, [runs.settings(case, stopped, *resumed)])
    assert compare(runs.reference(case, 2), stopped).largest() == 0.0
    runs.train(5, [runs.settings(case, others, *resumed, "train.deterministic=true")])
    assert 0.0 < compare(runs.reference(case, 2), others).largest() < 1e-3


def test_several_labels_are_evaluated_by_name(runs: Runs) -> None:
    """In the metrics: the first one's measures, and beside them those of the other."""
    records = [json.loads(line) for line in (runs.reference(STOPPED, 2) / "metrics.jsonl").read_text().splitlines()]
    told = [record for record in records if record["event"] == "evaluation"]
    assert len(told) == 2
    for record in told:
        assert list(record["further_labels"]) == ["sale"]
        assert record["further_labels"]["sale"]["log_loss"] != record["log_loss"]
