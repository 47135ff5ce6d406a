"""A run goes on from a checkpoint only if that is whole and of the same training."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bagpipe_hpc.config.file import doors, own_keys, setting_types, to_document
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig, TrainConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.preparation.resume import find_start, verify_share
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.run.resumed_settings import (
    CHANGEABLE,
    CHANGEABLE_DOORS,
    FIXED,
    FIXED_DOORS,
    FREE,
    RESOLVED,
    ROUNDING,
    changes_since,
)
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import (
    sample_records,
    sample_state,
    sample_tables,
    trained_dense,
    write_checkpoint,
    write_tables,
)

TABLES = (5, 3)
SHARDS = ShardManifest(
    1,
    "criteo",
    3,
    tuple(TableInfo(f"C{number}", rows) for number, rows in enumerate(TABLES, 1)),
    (ShardInfo("train-00000.h5", 2560, 7, 1, "0" * 64),),
    (),
)


def settings(output: Path, resume: str = "auto") -> Config:
    return Config(
        model=ModelConfig(embedding_dim=4),
        optimizer=OptimizerConfig(rows="rowwise_adagrad"),
        train=TrainConfig(output=str(output), resume=resume, batch_size=32, seed=7),
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """With the checkpoints of steps 100 and 200 by two servers."""
    for step in (100, 200):
        write_run(tmp_path, step)
    return tmp_path


def write_run(output: Path, step: int, **increment: Any) -> Path:
    """A checkpoint of the training of `settings` on `SHARDS`."""
    return write_checkpoint(
        output,
        sample_records(TABLES, 5),
        TABLES,
        servers=2,
        step=step,
        training_data=SHARDS.digest("train"),
        evaluation_data=SHARDS.digest("test"),
        config=to_document(settings(output)),
        **increment,
    )


def test_nothing_is_resumed_unasked(output: Path) -> None:
    assert find_start(settings(output, resume=""), SHARDS) is None


def test_auto_takes_the_newest_or_starts_anew(output: Path, tmp_path: Path) -> None:
    found = find_start(settings(output), SHARDS)
    assert found is not None
    assert found.manifest.step == 200
    assert find_start(settings(tmp_path / "new"), SHARDS) is None


@pytest.mark.parametrize(("path", "step"), [("checkpoints/step-00000100", 100), (".", 200)])
def test_a_named_checkpoint_or_output_folder_is_taken(output: Path, tmp_path: Path, path: str, step: int) -> None:
    found = find_start(settings(tmp_path / "new", str(output / path)), SHARDS)
    assert found is not None
    assert found.manifest.step == step


def test_a_checkpoint_that_is_not_there_is_an_error(output: Path) -> None:
    with pytest.raises(CheckpointError, match="step-00000300"):
        find_start(settings(output, str(output / "checkpoints" / "step-00000300")), SHARDS)


def test_a_truncated_file_is_named_and_the_checkpoint_before_it_offered(output: Path) -> None:
    path = output / "checkpoints" / "step-00000200" / "rows-00001-of-00002.h5"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"rows-00001-of-00002\.h5: has .*train\.resume=.*step-00000100"):
        find_start(settings(output), SHARDS)


@pytest.mark.parametrize(("column", "what"), [(1, "weights"), (-1, "optimizer_state")])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize("is_increment", [False, True])
def test_rows_that_are_not_finite_are_refused_by_name(
    tmp_path: Path, column: int, what: str, number: float, is_increment: bool
) -> None:
    """Also those of an increment, whose file holds some rows only."""
    records = sample_records(TABLES, 5)
    good = write_checkpoint(tmp_path, records, TABLES, servers=2, step=100)
    records[5, column] = number
    increment = {"base": good, "updated": np.asarray([1, 2, 5])} if is_increment else {}
    write_checkpoint(tmp_path, records, TABLES, servers=2, step=200, **increment)
    start = load_checkpoint(tmp_path)
    expected = (
        rf"rows-00001-of-00002\.h5: {what} of table C2, row 0 holds NaN or infinity.*: train\.resume=\S+step-00000100"
    )
    with pytest.raises(CheckpointError, match=expected):
        verify_share(start, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dense_numbers_that_are_not_finite_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    model, optimizer = trained_dense()
    for state, name in ((model, "model/2.bias"), (optimizer["state"][1], "optimizer/state/1/exp_avg_sq")):
        key = name.rpartition("/")[2]
        before, state[key] = state[key], state[key].to(dtype)
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, dense=(model, optimizer))
        start = load_checkpoint(tmp_path / name)
        verify_share(start, 0, 1)
        state[key] = state[key].clone()
        state[key].view(-1)[0] = torch.inf
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, step=101, dense=(model, optimizer))
        start = load_checkpoint(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"dense.h5: {name} holds NaN or infinity"):
            verify_share(start, 0, 1)
        state[key] = before


@pytest.mark.parametrize(
    ("name", "part", "place", "row"),
    [
        ("width-2-00001", "weights", 1, "table C4, row 0"),
        ("width-4-00000", "optimizer_state", 3, "table C3, row 1"),
    ],
)
def test_rows_of_any_width_that_are_not_finite_are_refused_by_name(
    tmp_path: Path, name: str, part: str, place: int, row: str
) -> None:
    path = write_tables(tmp_path, sample_tables((5, 3, 6, 3), (4, 2, 4, 2)))
    verify_share(load_checkpoint(path), 0, 1)
    with h5py.File(path / f"rows-{name}-of-00002.h5", "r+") as file:
        file[part][place, 0] = np.nan
    spoil(path / f"rows-{name}-of-00002.h5", "nothing else")
    with pytest.raises(CheckpointError, match=rf"rows-{name}-of-00002\.h5: {part} of {row} holds NaN"):
        verify_share(load_checkpoint(path), 0, 1)


@pytest.mark.parametrize(("width", "row"), [(4, "table C1, row 0"), (2, "table C2, row 0")])
def test_files_of_any_width_must_hold_every_row(tmp_path: Path, width: int, row: str) -> None:
    path = write_tables(tmp_path, sample_tables((5, 3, 7, 3), (4, 2, 4, 2)))
    name = f"rows-width-{width}-00000-of-00002.h5"
    with h5py.File(path / name, "r+") as file:
        file["runs"][0, 0] = 1
    spoil(path / name, "nothing else")
    with pytest.raises(CheckpointError, match=f"{row} is in no row file"):
        verify_share(load_checkpoint(path), 0, 2)


def test_damage_is_found_by_whoever_has_the_file_in_its_share(output: Path) -> None:
    """Three files over two ranks: the dense file and server 1's are the first one's."""
    path = output / "checkpoints" / "step-00000200" / "dense.h5"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    start = find_start(settings(output), SHARDS)
    assert start is not None
    verify_share(start, 1, 2)
    with pytest.raises(CheckpointError, match=r"dense\.h5: its SHA-256 is .*A checkpoint before it: .*step-00000100"):
        verify_share(start, 0, 2)


def spoil(path: Path, what: str) -> None:
    """Write a file of a checkpoint anew, its digest too, as a stranger could; with `nothing else` the digest alone."""
    if what == "no HDF5":
        path.write_bytes(path.read_bytes()[::-1])
    elif what == "a broken group":
        contents = bytearray(path.read_bytes())
        place = contents.index(b"TREE")
        contents[place : place + 24] = bytes(24)
        path.write_bytes(contents)
    elif what != "nothing else":
        name, values = {
            "rows fall": ("rows", np.array([2, 1])),
            "rows beyond the tables": ("rows", np.array([1, 99])),
            "weights are text": ("weights", np.full((2, 4), b"text")),
            "weights of another width": ("weights", np.zeros((2, 3), np.float32)),
        }[what]
        with h5py.File(path, "r+") as file:
            del file[name]
            file[name] = values
    manifest_path = path.with_name("manifest.json")
    manifest = load_checkpoint(path.parent).manifest
    info = FileInfo(path.name, path.stat().st_size, file_sha256(path))
    files = tuple(info if old.file == path.name else old for old in manifest.files)
    manifest_path.write_text(replace(manifest, files=files).to_json())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no HDF5", "cannot be read as HDF5"),
        ("a broken group", "cannot be read as HDF5"),
        ("rows fall", "rows are not ascending"),
        ("rows beyond the tables", "rows are not ascending numbers from 0 to 7"),
        ("weights are text", "weights is |S4"),
        ("weights of another width", r"weights is float32 \(2, 3\): must be float32 \(2, 4\)"),
    ],
)
def test_what_cannot_be_read_is_found_before_anybody_reads_it(tmp_path: Path, what: str, message: str) -> None:
    """In a checkpoint whose digests are right: an increment of rows 0, 2 (server 0) and 1 (server 1)."""
    records = sample_records(TABLES, 5)
    base = write_checkpoint(tmp_path, records, TABLES, servers=2, step=100)
    path = write_checkpoint(tmp_path, records, TABLES, servers=2, step=200, base=base, updated=np.array([0, 1, 2]))
    verify_share(load_checkpoint(tmp_path), 0, 1)
    spoil(path / "rows-00000-of-00002.h5", what)
    with pytest.raises(CheckpointError, match=rf"step-00000200/rows-00000-of-00002\.h5: .*{message}.*step-00000100$"):
        verify_share(load_checkpoint(tmp_path), 0, 1)


@pytest.mark.parametrize("size", ["same size", "cut off"])
def test_no_increment_on_a_damaged_checkpoint_is_offered(output: Path, size: str) -> None:
    """Steps 300 and 400 hold what was updated since 200."""
    path = output / "checkpoints" / "step-00000200"
    for step, base in ((300, path), (400, path.with_name("step-00000300"))):
        write_run(output, step, base=base, updated=np.array([step % 7]))
    start = find_start(settings(output), SHARDS)
    assert start is not None
    assert start.manifest.step == 400
    damaged = path / "rows-00000-of-00002.h5"
    contents = damaged.read_bytes()
    damaged.write_bytes(contents[:-1] + (b"" if size == "cut off" else bytes([contents[-1] ^ 1])))
    with pytest.raises(CheckpointError, match=r"step-00000200/rows-00000.*before it: train\.resume=.*step-00000100$"):
        verify_share(start, 0, 1)
    if size == "cut off":
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: has .*step-00000100$"):
            find_start(settings(output), SHARDS)


def test_a_damaged_manifest_offers_the_checkpoint_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000200" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"is no JSON.*train\.resume=.*step-00000100"):
        find_start(settings(output), SHARDS)


def test_the_only_checkpoint_has_none_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000100" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"use another checkpoint, or the version that wrote this one$"):
        find_start(settings(output, str(output / "checkpoints" / "step-00000100")), SHARDS)


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


def test_every_setting_has_its_place() -> None:
    """A new setting must be put into one of the sets, by whether a resumed run may differ in it."""
    places = [*FIXED, *OWN_FIXED, *CHANGEABLE, *OWN_CHANGEABLE, *ROUNDING, *RESOLVED, *FREE]
    assert sorted(places) == sorted(setting_types())


@pytest.mark.parametrize("key", [*FIXED, *OWN_FIXED])
def test_another_training_is_refused_by_name(output: Path, key: str) -> None:
    config = settings(output)
    section, _, name = key.partition(".")
    then, now = to_document(config)[section][name], OTHER[key]
    shown = [repr(list(value) if isinstance(value, tuple) else value) for value in (then, now)]
    with pytest.raises(CheckpointError) as raised:
        find_start(changed(config, key, now), SHARDS)
    assert f"is of another training: {key}: {shown[0]} then, {shown[1]} now" in str(raised.value)
    assert "start anew in another train.output" in str(raised.value)


def test_rows_may_be_placed_anew(output: Path) -> None:
    """What placed the rows changes no result, so that another placement goes on and has nothing to say."""
    config = changed(settings(output), "tables.placement", "by_table")
    start = find_start(config, SHARDS)
    assert start is not None
    said = [changes_since(start.manifest, Run(now, SHARDS, ()), ARITHMETIC) for now in (settings(output), config)]
    assert said[0] == said[1]


def test_all_differences_are_named(output: Path) -> None:
    config = changed(changed(settings(output), "train.seed", 8), "optimizer.dense", "Adam")
    with pytest.raises(
        CheckpointError, match=r"train\.seed: 7 then, 8 now; optimizer\.dense: 'Adagrad' then, 'Adam' now"
    ):
        find_start(config, SHARDS)


def with_state(output: Path, state: StateColumns) -> Config:
    """A run that goes on from a checkpoint whose rows have that state."""
    config = config_at(settings(output), output / "other")
    write_checkpoint(
        output / "other",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        evaluation_data=SHARDS.digest("test"),
        config=to_document(config),
        row_state=(state,),
    )
    return config


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({}, "{}"),
        ({"C1": 2, "C2": 2}, "{'C1': 2, 'C2': 2}"),
        ({"C1": 2}, "{'C1': 2}"),
        ({"C2": 2}, ""),
        ({"C2": 2, "C1": 4}, ""),
    ],
)
def test_widths_of_tables_are_those_of_the_files(output: Path, now: dict[str, int], said: str) -> None:
    """Whatever the recorded settings say; that a table has the usual width need not be said."""
    write_tables(
        output / "other",
        sample_tables(TABLES, (4, 2)),
        training_data=SHARDS.digest("train"),
        config=to_document(settings(output)),
        row_optimizer="rowwise_adagrad",
        row_state_columns=1,
        row_state=sample_state(1),
    )
    config = config_at(changed(settings(output), "model.embedding_dim_of", now), output / "other")
    if not said:
        assert find_start(config, SHARDS) is not None
        return
    with pytest.raises(CheckpointError) as raised:
        find_start(config, SHARDS)
    assert f"of another training: model.embedding_dim_of: {{'C2': 2}} then, {said} now. Resume" in str(raised.value)


def test_another_state_of_the_rows_is_refused_by_name(output: Path) -> None:
    """Of an optimizer that was changed meanwhile, though the numbers would fit."""
    config = with_state(output, StateColumns("mean", per_weight=False))
    said = r"optimizer\.rows, its state: \['mean \(one a row\)'\] then, \['sum_of_mean_squares \(one a row\)'\] now"
    with pytest.raises(CheckpointError, match=said):
        find_start(config, SHARDS)


def test_another_first_value_of_the_rows_state_is_said(output: Path) -> None:
    config = with_state(output, StateColumns("sum_of_mean_squares", per_weight=False, first=0.5))
    start = find_start(config, SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(config), start.manifest.arithmetic)
    assert change.startswith("optimizer.rows, first value of sum_of_mean_squares: 0.5 -> 0.0 (rows take theirs at the")


def test_lanes_that_the_data_decide_are_those_that_were_asked_for(output: Path) -> None:
    """The few rows here have room for one lane; another order has blocks that begin anew in each shard, or two."""
    for lanes in (0, 1):
        directory = output / f"lanes-{lanes}"
        config = changed(config_at(settings(output), directory), "data.lanes", lanes)
        write_checkpoint(
            directory,
            sample_records(TABLES, 5),
            TABLES,
            training_data=SHARDS.digest("train"),
            config=to_document(config),
        )
        assert find_start(changed(config, "data.lanes", 1 - lanes), SHARDS) is not None
        blocks = changed(config, "data.block_rows", 1)
        with pytest.raises(CheckpointError, match=r"data\.lanes"):
            find_start(changed(blocks, "data.lanes", 1 - lanes), SHARDS)
        with pytest.raises(CheckpointError, match=r"data\.lanes"):
            find_start(changed(config, "data.lanes", 2), SHARDS)


def test_without_shuffling_the_size_of_the_blocks_is_free(output: Path) -> None:
    config = changed(settings(output), "data.shuffle", False)
    write_checkpoint(
        output / "other",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        config=to_document(config),
    )
    resumed = changed(config_at(config, output / "other"), "data.block_rows", 100)
    assert find_start(changed(resumed, "data.lanes", 4), SHARDS) is not None


def config_at(config: Config, output: Path) -> Config:
    return changed(config, "train.output", str(output))


def test_a_setting_that_was_not_recorded_is_another(output: Path) -> None:
    write_checkpoint(output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"))
    with pytest.raises(CheckpointError, match=r"data\.block_rows: 'not recorded' then, 8192 now"):
        find_start(config_at(settings(output), output / "other"), SHARDS)


@pytest.mark.parametrize(
    ("shards", "what"),
    [
        (replace(SHARDS, train=(replace(SHARDS.train[0], rows=2559),)), "training samples: 2560 then, 2559 now"),
        (
            replace(SHARDS, tables=(*SHARDS.tables, TableInfo("C3", 4)), features=()),
            r"rows of the tables: \[5, 3\] then, \[5, 3, 4\] now",
        ),
        (replace(SHARDS, train=(replace(SHARDS.train[0], sha256="1" * 64),)), "digest of the training shards"),
        (
            replace(SHARDS, train=tuple(replace(SHARDS.train[0], file=f"{n}.h5", rows=n) for n in (2000, 560))),
            "digest of the training shards",
        ),
    ],
)
def test_other_data_is_refused(output: Path, shards: ShardManifest, what: str) -> None:
    with pytest.raises(CheckpointError, match=rf"is of another training: data\.path, .*{what}"):
        find_start(settings(output), shards)


def test_the_order_of_the_shards_counts_and_their_names_do_not() -> None:
    first, second = SHARDS.train[0], replace(SHARDS.train[0], file="b.h5", sha256="1" * 64)
    digests = {
        replace(SHARDS, train=shards).digest("train")
        for shards in ((first, second), (second, first), (first,), (replace(first, rows=2559),))
    }
    assert len(digests) == 4
    assert replace(SHARDS, train=(replace(first, file="c.h5"),)).digest("train") == SHARDS.digest("train")


ORDERING = "tests.end_to_end.policies:Interleaved"


@pytest.mark.parametrize(
    ("then", "now"), [("bagpipe", ORDERING), (ORDERING, "bagpipe"), ("gone.away:Policy", "bagpipe")]
)
def test_a_policy_with_another_order_of_samples_is_refused(output: Path, then: str, now: str) -> None:
    recorded = to_document(settings(output))
    recorded["policy"]["name"] = then
    write_checkpoint(
        output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"), config=recorded
    )
    config = config_at(changed(settings(output), "policy.name", now), output / "other")
    with pytest.raises(CheckpointError, match=rf"policy\.name: '{then}' then, '{now}' now \(the samples' order\)"):
        find_start(config, SHARDS)


def test_what_an_order_goes_by_stays(output: Path) -> None:
    """Another cache would have other hot rows, and the epoch's samples another order."""
    then = changed(settings(output), "policy.name", "fae")
    recorded = to_document(then)
    recorded["policy"]["share_percent"] = 50
    write_checkpoint(
        output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"), config=recorded
    )
    config = config_at(changed(then, "cache.rows", 99), output / "other")
    told = r"policy\.share_percent: 50 then, 100 now .*cache\.rows: 0 then, 99 now \(the samples' order\)"
    with pytest.raises(CheckpointError, match=told):
        find_start(config, SHARDS)


def job_of(config: Config, shards: ShardManifest = SHARDS) -> Run:
    return Run(config, shards, ())


def test_nothing_is_said_where_nothing_changed(output: Path) -> None:
    start = find_start(settings(output), SHARDS)
    assert start is not None
    free = changed(changed(settings(output), "lookahead.batches", 3), "kernels.backend", "reference")
    assert changes_since(start.manifest, job_of(free), ARITHMETIC) == []


@pytest.mark.parametrize(
    "key", [key for key in (*CHANGEABLE, *OWN_CHANGEABLE, *ROUNDING) if not key.startswith(RATE_SECTIONS)]
)
def test_what_may_change_is_said(output: Path, key: str) -> None:
    config = changed(settings(output), key, OTHER[key])
    start = find_start(config, SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(config), ARITHMETIC)
    assert change.startswith(f"{key}: ")
    assert " -> " in change


@pytest.mark.parametrize("section", [name.removesuffix(".") for name in RATE_SECTIONS])
@pytest.mark.parametrize(
    ("decay", "name", "value"),
    [
        ("cosine", "decay", "polynomial"),
        ("cosine", "warmup_steps", 5),
        ("cosine", "decay_start", 7),
        ("cosine", "decay_steps", 200),
        ("cosine", "end_factor", 0.5),
        ("polynomial", "power", 1.0),
        ("step", "gamma", 0.5),
    ],
)
def test_another_schedule_of_the_rate_is_said(output: Path, section: str, decay: str, name: str, value: object) -> None:
    kind = type(getattr(Config(), section))
    before = kind(decay=decay, decay_steps=100)
    then, now = (replace(settings(output), **{section: part}) for part in (before, replace(before, **{name: value})))
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(then))))
    (change,) = changes_since(manifest, job_of(now), ARITHMETIC)
    assert change == f"{section}.{name}: {getattr(before, name)!r} -> {value!r}"


def test_a_checkpoint_from_before_there_were_schedules_had_a_constant_rate(output: Path) -> None:
    recorded = to_document(settings(output))
    for section in RATE_SECTIONS:
        del recorded[section.removesuffix(".")]
    manifest = replace(load_checkpoint(output).manifest, config=recorded)
    assert changes_since(manifest, job_of(settings(output)), ARITHMETIC) == []


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("trainers", 3, "number of trainers: 2 -> 3"),
        ("linear", "onednn", r"kernels\.linear\): torch -> onednn"),
        ("device", "cuda", r"train\.device\): cpu -> cuda"),
        ("threads", 4, r"train\.threads\): 1 -> 4"),
    ],
)
def test_what_changes_the_last_bits_is_said(output: Path, field: str, value: object, what: str) -> None:
    start = find_start(settings(output), SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(settings(output)), replace(ARITHMETIC, **{field: value}))
    assert re.search(what, change)
    assert "last bits" in change


def test_other_test_rows_are_said(output: Path) -> None:
    other = replace(SHARDS, test=(ShardInfo("test-00000.h5", 5, 1, 1, "3" * 64),))
    start = find_start(settings(output), other)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(settings(output), other), ARITHMETIC)
    assert "test rows" in change


def test_a_change_without_effect_is_said_as_such(output: Path) -> None:
    before = changed(settings(output), "optimizer.dense", "Rprop")
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(before))))
    (change,) = changes_since(manifest, job_of(changed(before, "optimizer.dense_lr", 0.5)), ARITHMETIC)
    assert "Rprop takes its lr at the start of a training only" in change
    options = changed(settings(output), "optimizer.dense_options", {"initial_accumulator_value": 0.1})
    (change,) = changes_since(load_checkpoint(output).manifest, job_of(options), ARITHMETIC)
    assert "Adagrad takes its initial_accumulator_value at the start" in change
