"""Sound files of every kind that a command reads, made once by the commands themselves."""

from pathlib import Path

import pytest

from tests.fuzz.commands import run_limited

OF_RUNS = """
data.path = "{data}"
data.block_rows = 16
model.embedding_dim = 4
train.batch_size = 20
train.threads = 1
train.timeout_s = 20.0
train.checkpoint_every_steps = 3
kernels.linear = "torch"
"""
OF_MODELS = {
    "visits": 'model.name = "wide_deep"\nmodel.deep_mlp = [8]\nfeatures.longest_of = { history = 9 }\n',
    "clicks": "model.bottom_mlp = [8]\nmodel.top_mlp = [8]\n",
    "graph": 'model.name = "graphsage"\nfeatures.pooling = "sequence"\ngraph.fan_outs = [2, 2]\n',
}
SLIPSTREAM = [
    *("policy.name=slipstream", "policy.hot_rows=200", "policy.sample_percent=100", "policy.first_snapshot=0"),
    *("policy.between_percent=20", "policy.judged_percent=100", "policy.profile=hot.h5"),
]
RECSHARD = ["tables.statistics=counts.npz", "tables.fast_gb=0.00001", "tables.time_limit_s=0"]
PLACE = ["place", "visits.toml", "--servers=2", "tables.placement=recshard", *RECSHARD]
MADE: list[list[str]] = [
    ["generate", "--seed=3", "--rows=300", "--output=clicks.tsv", "--ids-at-most=9"],
    ["generate", "--seed=3", "--rows=300", "--output=visits.csv", "--kind=sequences"],
    ["prepare", "--input=clicks.tsv", "--output=clicks", "--rows-per-shard=150"],
    ["prepare", "--format=sequences", "--input=visits.csv", "--output=visits"],
    ["generate-graph", "--nodes=200", "--output=raw", "--degree=3"],
    ["prepare-graph", "--edges=raw/edges.tsv", "--nodes=raw/nodes.csv", "--output=graph"],
    ["train", "visits.toml", "train.output=run"],
    ["train", "visits.toml", "train.output=slip", *SLIPSTREAM],
    ["inspect", "visits", "--statistics=counts.npz"],
    [*PLACE, "tables.plan=plan.npz"],
    ["plan", "visits.toml", "--trainers=2", "--save=plans"],
]
EXPORTED = ["export", "run", "--to=exported", "--no-onnx"]
"""Takes longer than all others together."""


def write_settings(folder: Path) -> None:
    """Write `visits.toml`, `clicks.toml` and `graph.toml`."""
    for data, model in OF_MODELS.items():
        (folder / f"{data}.toml").write_text(model + OF_RUNS.format(data=data), encoding="utf-8")


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that `MADE` writes; commands run in copies of it, and paths are relative to it."""
    folder = tmp_path_factory.mktemp("sound")
    write_settings(folder)
    for ended in run_limited(folder, MADE):
        assert ended.code == 0, (ended.arguments, ended.said)
    return folder


@pytest.fixture(scope="session")
def exported(sound: Path) -> Path:
    """The same folder with `exported`."""
    [ended] = run_limited(sound, [EXPORTED])
    assert ended.code == 0, ended.said
    return sound
