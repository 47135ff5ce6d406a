"""Settings of runs that go on, changed one at a time."""

from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.config.file import doors, own_keys
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.resumed_settings import CHANGEABLE_DOORS, FIXED_DOORS
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.resumed_runs import SHARDS

OTHER: dict[str, object] = {
    "data.block_rows": 100,
    "data.shuffle": False,
    "data.lanes": 4,
    "train.seed": 8,
    "train.batch_size": 64,
    "model.name": "builtins:object",
    "model.embedding_dim": 8,
    "features.pooling": "mean",
    "graph.fan_outs": [3],
    "model.embedding_dim_of": {"C1": 8},
    "features.pooling_of": {"C1": "mean"},
    "features.longest": 3,
    "features.longest_of": {"C1": 3},
    "model.bottom_mlp": (8,),
    "model.top_mlp": (512, 128),
    "model.frozen": ("bottom.*",),
    "tables.initial_bound": 0.01,
    "tables.frozen": ("C1",),
    "optimizer.rows": "sgd",
    "optimizer.dense": "SGD",
    "optimizer.rows_lr": 0.5,
    "optimizer.rows_eps": 1e-3,
    "optimizer.dense_lr": 0.5,
    "optimizer.dense_options": {"lr_decay": 0.1},
    "optimizer.dense_clip_norm": 1.0,
    "optimizer.rows_clip_norm": 0.5,
    "optimizer.rows_weight_decay": 0.5,
    "optimizer.rows_weight_decay_mode": "decoupled",
    "model.precision": "bfloat16",
    "train.deterministic": True,
    "train.dense_sums": "mpi",
    "train.weight_gradients": "late",
    "train.late_share": 0.25,
    "train.sums_thread": "own",
    "train.row_sums": "bfloat16",
    "policy.name": "bagpipe_hpc.planning.lookahead.policy:LookaheadPolicy",  # bagpipe's long name
}
"""For each setting that is compared a value that the run did not have."""
RATE_SECTIONS = ("rows_rate.", "dense_rate.")
"""Their settings go together; they have a test of their own."""
ARITHMETIC = Arithmetic(trainers=2, linear="torch", device="cpu", threads=1)
OWN = {"model": "settings", "optimizer": "row_settings", "policy": "settings", "tables": "settings"}
"""Of a section, the field with the own settings of what its door names."""


def changed(config: Config, key: str, value: object) -> Config:
    section, _, name = key.partition(".")
    part = getattr(config, section)
    if key in doors():
        part = replace(part, **{name: value, OWN[section]: None})
    elif hasattr(part, name):
        part = replace(part, **{name: value})
    else:
        own = replace(getattr(part, OWN[section]), **{name.removeprefix("rows_"): value})
        part = replace(part, **{OWN[section]: own})
    return replace(config, **{section: part})


OWN_FIXED = [key for door in FIXED_DOORS for key in own_keys(Config(), door)]
OWN_CHANGEABLE = [key for door in CHANGEABLE_DOORS for key in own_keys(Config(), door)]


def config_at(config: Config, output: Path) -> Config:
    return changed(config, "train.output", str(output))


def job_of(config: Config, shards: ShardManifest = SHARDS) -> Run:
    return Run(config, shards, ())
