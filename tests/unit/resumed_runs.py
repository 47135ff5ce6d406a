"""A training with checkpoints, from which runs go on."""

from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig, TrainConfig
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import (
    sample_records,
    write_checkpoint,
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


def write_two_checkpoints(output: Path) -> None:
    """Those of steps 100 and 200, by two servers."""
    for step in (100, 200):
        write_run(output, step)
