"""A run goes on from a checkpoint only if that is whole and of the same training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bagpipe_hpc.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.roles.resume import find_start, verify_share
from bagpipe_hpc.storage.shard_manifest import ShardInfo, ShardManifest, TableInfo
from tests.unit.checkpoint_samples import sample_records, trained_dense, write_checkpoint

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
        write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, servers=2, step=step)
    return tmp_path


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
    start = find_start(settings(tmp_path), SHARDS)
    assert start is not None
    expected = rf"rows-00001-of-00002\.h5: {what} of row <5> holds NaN or infinity.*: train\.resume=\S+step-00000100"
    with pytest.raises(CheckpointError, match=expected):
        verify_share(start, 0, 1, "row <{}>".format)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dense_numbers_that_are_not_finite_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    model, optimizer = trained_dense()
    for state, name in ((model, "model/2.bias"), (optimizer["state"][1], "optimizer/state/1/exp_avg_sq")):
        key = name.rpartition("/")[2]
        before, state[key] = state[key], state[key].to(dtype)
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, dense=(model, optimizer))
        start = find_start(settings(tmp_path / name), SHARDS)
        assert start is not None
        verify_share(start, 0, 1, str)
        state[key] = state[key].clone()
        state[key].view(-1)[0] = torch.inf
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, step=101, dense=(model, optimizer))
        start = find_start(settings(tmp_path / name), SHARDS)
        assert start is not None
        with pytest.raises(CheckpointError, match=f"dense.h5: {name} holds NaN or infinity"):
            verify_share(start, 0, 1, str)
        state[key] = before


def test_damage_is_found_by_whoever_has_the_file_in_its_share(output: Path) -> None:
    """Three files over two ranks: the dense file and server 1's are the first one's."""
    path = output / "checkpoints" / "step-00000200" / "dense.h5"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    start = find_start(settings(output), SHARDS)
    assert start is not None
    verify_share(start, 1, 2, str)
    with pytest.raises(CheckpointError, match=r"dense\.h5: its SHA-256 is .*A checkpoint before it: .*step-00000100"):
        verify_share(start, 0, 2, str)


@pytest.mark.parametrize("size", ["same size", "cut off"])
def test_no_increment_on_a_damaged_checkpoint_is_offered(output: Path, size: str) -> None:
    """Steps 300 and 400 hold what was updated since 200."""
    path = output / "checkpoints" / "step-00000200"
    for step, base in ((300, path), (400, path.with_name("step-00000300"))):
        records = sample_records(TABLES, 5)
        write_checkpoint(output, records, TABLES, servers=2, step=step, base=base, updated=np.array([step % 7]))
    start = find_start(settings(output), SHARDS)
    assert start is not None
    assert start.manifest.step == 400
    damaged = path / "rows-00000-of-00002.h5"
    contents = damaged.read_bytes()
    damaged.write_bytes(contents[:-1] + (b"" if size == "cut off" else bytes([contents[-1] ^ 1])))
    with pytest.raises(CheckpointError, match=r"step-00000200/rows-00000.*before it: train\.resume=.*step-00000100$"):
        verify_share(start, 0, 1, str)
    if size == "cut off":
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: has .*step-00000100$"):
            find_start(settings(output), SHARDS)


def test_a_damaged_manifest_offers_the_checkpoint_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000200" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"is not a manifest in JSON.*train\.resume=.*step-00000100"):
        find_start(settings(output), SHARDS)


def test_the_only_checkpoint_has_none_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000100" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"use another checkpoint$"):
        find_start(settings(output, str(output / "checkpoints" / "step-00000100")), SHARDS)


@pytest.mark.parametrize(
    ("section", "field", "value", "what"),
    [
        ("train", "batch_size", 64, r"train\.batch_size: 32 instead of 64"),
        ("train", "seed", 8, r"train\.seed: 7 instead of 8"),
        ("model", "embedding_dim", 8, r"model\.embedding_dim: 4 instead of 8"),
        ("optimizer", "rows", "sgd", r"optimizer\.rows: 'rowwise_adagrad' instead of 'sgd'"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    output: Path, section: str, field: str, value: object, what: str
) -> None:
    config = settings(output)
    other = replace(config, **{section: replace(getattr(config, section), **{field: value})})
    with pytest.raises(CheckpointError, match=rf"was written with another {what}.*resume with the same settings"):
        find_start(other, SHARDS)


def test_other_data_is_refused(output: Path) -> None:
    fewer = replace(SHARDS, train=(replace(SHARDS.train[0], rows=2559),))
    with pytest.raises(CheckpointError, match=r"training samples: 2560 instead of 2559"):
        find_start(settings(output), fewer)
    larger = replace(SHARDS, tables=(*SHARDS.tables, TableInfo("C3", 4)))
    with pytest.raises(CheckpointError, match=r"rows of the tables: \(5, 3\) instead of \(5, 3, 4\)"):
        find_start(settings(output), larger)
