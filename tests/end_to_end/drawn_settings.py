"""Draws settings of whole runs that go together, and worlds of ranks for them, from a seed."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.layers.linear import check_bfloat16
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import load_manifest
from tests.end_to_end.test_equality import LINEAR
from tests.graphs import write_graph_data
from tests.ragged_shards import write_ragged

Settings = list[str]
"""Overrides of a configuration."""

MLPS = ("model.bottom_mlp=[16]", "model.top_mlp=[16]")
CROSSED = ("model.cross_layers=2", "model.deep_mlp=[16]")
DEEP = "model.deep_mlp=[16]"
CLICK_MODELS = {
    "dlrm": MLPS,
    "wide_deep": (DEEP,),
    "deepfm": (DEEP,),
    "dcn": CROSSED,
    "dcn_v2": CROSSED,
    "dlrm_dcnv2": (*MLPS, "model.cross_layers=2", "model.cross_rank=4"),
}
BAG_MODELS = {name: CLICK_MODELS[name] for name in ("dlrm", "wide_deep", "deepfm", "dcn_v2")} | {
    "din": ('model.attention={ history = "item" }', DEEP, 'features.pooling_of={ history = "sequence" }')
}
SUMMED = ("features.pooling=sum", "graph.fan_outs=[3]")
GRAPH_MODELS = {
    "graphsage": ("model.hidden=5", "features.pooling=sequence", "graph.fan_outs=[3,2]"),
    "wide_deep": (DEEP, *SUMMED),
    "dlrm": (*MLPS, *SUMMED),
}
OF_BAGS: Sequence[Settings] = (
    [],
    ["features.pooling=mean"],
    ["features.longest=2"],
    ["features.longest_of={ history = 1 }"],
)
OF_ONE_WIDTH = ("dlrm", "dlrm_dcnv2", "deepfm")
ROW_OPTIMIZERS = ("sgd", "momentum", "rowwise_adagrad", "adagrad", "adam", "rowwise_adam", "ftrl")
OWN_OF_ROWS = {
    "momentum": ["optimizer.rows_nesterov=true", "optimizer.rows_momentum=0.5"],
    "adam": ["optimizer.rows_betas=[0.5, 0.9]"],
    "rowwise_adam": ["optimizer.rows_betas=[0.5, 0.9]"],
    "ftrl": ["optimizer.rows_l1=1e-5", "optimizer.rows_l2=1e-4", "optimizer.rows_beta=1.0"],
}
"""Settings that optimizers of rows have for themselves."""
DENSE_OPTIMIZERS = ("SGD", "Adam", "Adagrad", "AdamW", "RMSprop", "NAdam", "Adamax")
POLICIES = {
    "none": (),
    "pinned": (),
    "het": ("policy.staleness=0", "cache.rows=3600"),
    "hotline": ("policy.hot_rows=600", "policy.learning_batches=2", "policy.refresh_batches=3"),
    "herald": ("cache.rows=3600",),
    "scratchpipe": (),
    "fae": ("policy.hot_rows=600",),
    "slipstream": ("policy.hot_rows=600", "policy.first_snapshot=2"),
}
OF_HOT_ROWS = ("hotline", "fae", "slipstream")
"""Policies that take rows of one width alone."""
OF_KNOWN_LOOK_UPS = ("fae", "slipstream")
"""Policies that count look-ups before a run, which a graph's are drawn for."""


def _multiplies_bfloat16() -> bool:
    with suppress(ConfigError):
        check_bfloat16(torch.device("cpu"))
        return True
    return False


FREE: tuple[Sequence[Settings], ...] = (
    [["optimizer.dense_clip_norm=0.3"]],
    [["dense_rate.warmup_steps=4"]],
    [["optimizer.dense_options={ weight_decay = 0.01 }"]],
    [["tables.placement=contiguous"], ["tables.placement=by_table"], ["tables.placement=greedy_size"]],
    [["tables.initial_bound=0.2"]],
    [["model.precision=bfloat16"] if _multiplies_bfloat16() else []],
    [['model.frozen=["*bias"]']],
    [["roles.server_poll_us=0"]],
    [["roles.same_host=transfers"]],
    [["train.row_sums=bfloat16"], ["train.row_sums=float16"]],
    [["train.weight_gradients=late"], ["train.weight_gradients=late", "train.late_share=0.5"]],
    [["train.sums_thread=own"], ["train.sums_thread=mover"]],
    [["kernels.row_threads=2"], ["train.threads=2"], ["data.reader_threads=2"]],
    [["kernels.planner_threads=2"], ["kernels.planner_threads=7"]],
    [["data.shuffle=false"], ["data.lanes=5", "data.block_rows=32"]],
    [["cache.measure=all"]],
    [["train.log_every_steps=1"]],
    [
        ["train.evaluate=false"],
        ["train.evaluate_every_steps=2"],
        ["train.evaluate_every_steps=2", "train.evaluate_samples=60"],
        ["train.evaluate_every_steps=1", "train.stop_after=1"],
        ["train.exact_auc_samples=50"],
        ["train.evaluate_every_steps=3", "train.keep_best=true"],
    ],
)
"""Of each kind the settings that go with all others; half of the kinds is left out."""
SAVED: Sequence[Settings] = (
    ["train.full_checkpoint_every=3"],
    ["train.checkpoint_copy=false"],
    ["train.full_checkpoint_every=2", "train.keep_checkpoints=2"],
)


@dataclass(frozen=True)
class Data:
    """Shards to train on.

    Attributes:
        path: of the shards.
        models: by name, with their settings.
        tables: some of them: one that is frozen, one that has narrow rows, and a feature to group by; None of a graph.
        pins, tiers: plans of tables: of rows that trainers keep, and of some that a trainer of each host keeps.
    """

    path: Path
    models: dict[str, tuple[str, ...]]
    tables: tuple[str, str, str] | None
    pins: Path
    tiers: Path


@dataclass(frozen=True)
class World:
    """Ranks: an oracle, servers and trainers, on as many hosts as there are numbers of these."""

    servers: int
    trainers: int
    hosts: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return 1 + self.servers + self.trainers


def draw_world(random: Random, *, is_even: bool) -> World:
    """Up to seven trainers, a number that is even or not; a host is named by its lowest rank."""
    servers, trainers = random.randint(1, 3), 2 * random.randint(1, 3) + (not is_even)
    names = [random.randrange(3) for _ in range(1 + servers + trainers)]
    return World(servers, trainers, tuple(names.index(name) for name in names))


def draw_data(random: Random, clicks: Path, folder: Path) -> tuple[Data, ...]:
    """Clicks; bags of ids with weights, a shared table and perhaps weights of samples and two labels; nodes of a graph.

    Bags, the graph and plans of tables are written to `folder`, which is made.
    """
    graph = folder / "graph"
    write_graph_data(graph, 400, seed=random.randrange(100), rows_per_shard=150)
    bags = folder / "bags"
    several = random.random() < 1 / 2
    tables = (TableInfo("user", 300), TableInfo("item", 400), TableInfo("genre", 30))
    labels = ("click", "sale") if several else ("click",)
    write_ragged(
        *(bags, random.randrange(100), 1500),
        test_samples=150,
        tables=tables,
        labels=labels,
        weighted_samples=several,
        rows_per_shard=600,
    )
    return (
        Data(clicks, CLICK_MODELS, ("C1", "C20", "C3"), *_plans(clicks, folder, "clicks")),
        Data(bags, BAG_MODELS, ("user", "genre", "item"), *_plans(bags, folder, "bags")),
        Data(graph, GRAPH_MODELS, None, *_plans(graph, folder, "graph")),
    )


def _plans(shards: Path, folder: Path, name: str) -> tuple[Path, Path]:
    """Every seventh row stays with trainers; in the second plan, which is for two hosts, every third with each host."""
    tables = [WholeTable(table.name, table.rows, 8, 36) for table in load_manifest(shards).tables]
    pinned = {table.name: np.arange(0, table.rows, 7) for table in tables}
    hosted = {table.name: np.setdiff1d(np.arange(0, table.rows, 3), pinned[table.name]) for table in tables}
    pins, tiers = folder / f"{name}-pins.npz", folder / f"{name}-tiers.npz"
    of_all: tuple[Any, ...] = ("flexshard", "ab" * 32, 1, tables, [0] * len(tables), pinned)
    with pins.open("wb") as file:
        write_plan(file, *of_all)
    with tiers.open("wb") as file:
        write_plan(file, *of_all, hosted=hosted, trainer_hosts=2)
    return pins, tiers


def draw_settings(random: Random, data: Data, disk: Path, *, is_even: bool) -> Settings:
    """What a run has, but where its output goes and on which ranks it trains.

    Args:
        random: draws.
        data: what it trains on.
        disk: for rows that lie on one.
        is_even: whether the number of trainers is, so that they can be halves, one on each host, for rows in tiers.
    """
    model = random.choice(list(data.models))
    policies = [name for name in POLICIES if data.tables or name not in OF_KNOWN_LOOK_UPS]
    policy = random.choice(["bagpipe", *policies]) if random.random() < 1 / 2 else "bagpipe"
    backend = random.choice(["native", "native", "native", "reference"])
    drawn = [f"data.path={data.path}", f"model.name={model}", *data.models[model], f"policy.name={policy}"]
    drawn += [f"train.batch_size={random.choice([3, 20, 70, 150, 300])}", f"train.seed={random.randint(1, 9)}"]
    drawn += [f"train.max_steps={random.choice([4, 7, 11])}", "train.epochs=9", f"kernels.backend={backend}"]
    drawn += [f"train.dense_sums={random.choice(['mpi', 'mpi', 'grid', 'grid', 'horovod'])}"]
    drawn += [f"kernels.linear={random.choice([LINEAR, 'torch'])}"]
    drawn += [f"optimizer.dense={random.choice(DENSE_OPTIMIZERS)}", *_of_rows(random, policy)]
    drawn += _of_policy(random, policy, data, is_even=is_even)
    if data.tables is not None:
        drawn += _of_tables(random, *data.tables, one_width=model in OF_ONE_WIDTH or policy in OF_HOT_ROWS)
    if data.models is BAG_MODELS:
        drawn += random.choice(OF_BAGS)
    if random.random() < 1 / 3:
        drawn += [f"train.checkpoint_every_steps={random.randint(1, 3)}", *random.choice(SAVED)]
    if backend == "native" and random.random() < 1 / 4:
        drawn += [f"kernels.planner_state={random.choice(['sparse', 'dense'])}"]
    if random.random() < 1 / 6:
        drawn += ["tables.memory_gb=0.0001", f"tables.ssd_path={disk}", "debug.ssd_path_in_memory=true"]
    else:
        drawn += random.choice([[], ["roles.transfers=messages"], ["roles.transfers=one_sided"]])
    for kinds in FREE:
        if random.random() < 1 / 2:
            drawn += random.choice(kinds)
    return drawn


def _of_tables(random: Random, frozen: str, narrow: str, group: str, *, one_width: bool) -> Settings:
    """Widths, and what is to be done with some of the tables."""
    drawn = []
    if not one_width and random.random() < 1 / 2:
        drawn += [f"model.embedding_dim_of={{ {narrow} = 4{random.choice(['', f', {group} = 12'])} }}"]
    if random.random() < 1 / 5:
        drawn += [f'tables.frozen=["{frozen}"]']
    if random.random() < 1 / 4:
        drawn += [f"train.auc_group={group}"]
    return drawn


def _of_rows(random: Random, policy: str) -> Settings:
    """The optimizer of rows. Trainers that add to each other's rows take SGD, and nothing that looks at whole sums."""
    rate = f"optimizer.rows_lr={random.choice(['0.05', '0.5'])}"
    if policy == "het":
        return ["optimizer.rows=sgd", rate]
    name = random.choice(ROW_OPTIMIZERS)
    drawn = [f"optimizer.rows={name}", rate]
    if name in OWN_OF_ROWS and random.random() < 1 / 2:
        drawn += OWN_OF_ROWS[name]
    if random.random() < 1 / 4:
        drawn += ["optimizer.rows_clip_norm=0.004"]
    if random.random() < 1 / 4:
        mode = random.choice(["l2", "decoupled"]) if name != "ftrl" else "l2"
        drawn += ["optimizer.rows_weight_decay=0.01", f"optimizer.rows_weight_decay_mode={mode}"]
    if random.random() < 1 / 4:
        drawn += ["rows_rate.decay=step", "rows_rate.decay_steps=3", "rows_rate.gamma=0.5"]
    return drawn


def _of_policy(random: Random, policy: str, data: Data, *, is_even: bool) -> Settings:
    """Window and ways of rows of ours, or of one that pins some; or what another policy has."""
    if policy not in ("bagpipe", "pinned"):
        return list(POLICIES[policy])
    lookahead = random.choice([1, 2, 3, 5, 8, 20])
    drawn = [f"lookahead.batches={lookahead}"]
    if lookahead > 1:
        drawn += [f"lookahead.group={random.randint(1, lookahead - 1)}"]
    sharing = random.choice(["home", "home", "replicated", *(["tiered"] * 2 if policy == "pinned" and is_even else [])])
    if policy == "pinned":
        drawn += [f"policy.plan={data.tiers if sharing == 'tiered' else data.pins}"]
    if sharing != "replicated":
        drawn += random.choice([[], ["cache.exchange=grid"]])
    return [*drawn, f"cache.sharing={sharing}"]
