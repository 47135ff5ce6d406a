"""A checkpoint is scored with the settings that decide its predictions; the others are free, or refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.config.file import config_of, setting_types, to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError, ConfigError
from bagpipe_hpc.run.start.scored_settings import FREE, KEPT, scoring_config, with_data
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

TRAINED = {
    "data.path": "prepared",
    "model.embedding_dim": 4,
    "model.top_mlp": [7, 5],
    "features.longest": 3,
    "optimizer.rows": "adam",
    "optimizer.rows_lr": 0.5,
    "optimizer.dense": "Adam",
    "rows_rate.decay": "cosine",
    "rows_rate.decay_steps": 7,
    "lookahead.batches": 7,
    "roles.servers": 5,
    "tables.placement": "by_table",
    "train.seed": 9,
    "train.batch_size": 32,
    "train.output": "trained",
    "train.keep_best": True,
    "train.reference_slices": 2,
    "kernels.linear": "onednn",
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return checkpoint_of(tmp_path, to_document(config_of(TRAINED, "here")))


def checkpoint_of(folder: Path, document: dict[str, Any]) -> Checkpoint:
    written = write_checkpoint(folder, sample_records((5,), 5), (5,), config=document)
    return load_checkpoint(written)


def test_the_model_is_the_checkpoints_and_nothing_is_trained(checkpoint: Checkpoint) -> None:
    config = scoring_config(checkpoint)
    trained = config_of(TRAINED, "here")
    same = ("model", "features", "lookahead", "cache", "policy", "kernels", "data")
    assert all(getattr(config, section) == getattr(trained, section) for section in same)
    assert (config.train.seed, config.train.batch_size) == (9, 32)
    assert (config.optimizer.rows, config.optimizer.dense) == ("sgd", "SGD")
    assert config.train.threads == checkpoint.manifest.arithmetic.threads
    default = Config()
    assert (config.roles, config.tables, config.rows_rate) == (default.roles, default.tables, default.rows_rate)
    train = replace(default.train, seed=9, batch_size=32, threads=1, dense_sums="mpi", device="cpu")
    assert config.train == train


@pytest.mark.parametrize(("trained_on", "scored_on"), [("cpu", "cpu"), ("cuda", "auto")])
def test_what_was_trained_on_gpus_can_be_scored_without(tmp_path: Path, trained_on: str, scored_on: str) -> None:
    """Whatever `train.device` said; a run settles it."""
    document = to_document(config_of({**TRAINED, "train.device": "cuda"}, "here"))
    arithmetic = Arithmetic(trainers=2, linear="torch", device=trained_on, threads=1)
    written = write_checkpoint(tmp_path, sample_records((5,), 5), (5,), config=document, arithmetic=arithmetic)
    checkpoint = load_checkpoint(written)
    assert scoring_config(checkpoint).train.device == scored_on
    assert scoring_config(checkpoint, ["train.device=cuda"]).train.device == "cuda"


def test_how_it_is_computed_may_change(checkpoint: Checkpoint) -> None:
    given = ["roles.servers=2", "lookahead.batches=1", "kernels.linear=torch", "train.threads=2"]
    config = scoring_config(checkpoint, [*given, "tables.placement=contiguous", "train.auc_group='C1'"])
    assert (config.roles.servers, config.lookahead.batches, config.kernels.linear) == (2, 1, "torch")
    assert (config.train.threads, config.tables.placement, config.train.auc_group) == (2, "contiguous", "C1")
    assert with_data(config, "elsewhere").data.path == "elsewhere"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.embedding_dim=8", "model.embedding_dim is the checkpoint's"),
        ("model.top_mlp=[3]", "model.top_mlp is the checkpoint's"),
        ("features.pooling='mean'", "features.pooling is the checkpoint's"),
        ("train.batch_size=64", "train.batch_size is the checkpoint's"),
        ("train.seed=1", "train.seed is the checkpoint's"),
        ("tables.initial_bound=0.5", "tables.initial_bound is"),
        ("optimizer.rows=sgd", "optimizer.rows is for training"),
        ("rows_rate.decay=step", "rows_rate.decay is for training"),
        ("train.output=there", "train.output is for training"),
        ("train.resume=auto", "train.resume is for training"),
        ("train.reference_slices=2", "train.reference_slices is for training"),
        ("data.path=there", "--data names the data"),
        ("data.shuffle=false", "data.shuffle is the checkpoint's"),
    ],
)
def test_what_would_change_the_model_is_refused(override: str, reason: str, checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError) as refusal:
        scoring_config(checkpoint, [override])
    assert reason in str(refusal.value)
    assert repr(override) in str(refusal.value)
    assert "settings that may change: cache.*, data.verify" in str(refusal.value)


def test_a_mistyped_override_is_refused_as_elsewhere(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match=r"did you mean kernels\.linear"):
        scoring_config(checkpoint, ["kernels.liner=torch"])


def test_a_checkpoint_whose_settings_are_none_is_refused_by_its_name(tmp_path: Path) -> None:
    broken = checkpoint_of(tmp_path, {"model": {"embedding_dim": "wide"}})
    with pytest.raises(CheckpointError, match=r"manifest\.json.*embedding_dim = 'wide'"):
        scoring_config(broken)


def test_the_lists_name_settings() -> None:
    keys = setting_types({"policy.name": "bagpipe"})
    for name in (*KEPT, *FREE):
        assert any(key.startswith(name) if name[-1] == "." else key == name for key in keys), name
