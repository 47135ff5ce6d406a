"""What scores in another way than the run that trained is said, as far as it changes predictions; the rest is not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.resumed_settings import changes_since
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.resumed_runs import SHARDS, settings


def trained(output: Path) -> CheckpointManifest:
    return load_checkpoint(output / "checkpoints" / "step-00000100").manifest


def said(manifest: CheckpointManifest, config: Config, shards: ShardManifest = SHARDS, **arithmetic: Any) -> list[str]:
    run = Run(config, shards, (), trains=False)
    return changes_since(manifest, run, replace(manifest.arithmetic, **arithmetic))


def test_what_changes_the_last_digits_is_said_whatever_the_number_of_trainers(output: Path) -> None:
    manifest, config = trained(output), settings(output)
    trainers = manifest.arithmetic.trainers + 3
    assert said(manifest, config, trainers=trainers) == []
    rounded = replace(config, model=replace(config.model, precision="bfloat16"))
    threads = manifest.arithmetic.threads
    assert said(manifest, rounded, trainers=trainers, threads=threads + 1) == [
        "model.precision: float32 -> bfloat16",
        f"number of threads (train.threads): {threads} -> {threads + 1} (results differ in the last bits)",
    ]


def test_a_precision_that_was_not_recorded_is_not_said(output: Path) -> None:
    manifest, config = trained(output), settings(output)
    recorded = json.loads(json.dumps(to_document(config)))
    del recorded["model"]["precision"]
    assert said(replace(manifest, config=recorded), config) == []


def test_of_other_rows_it_is_said_that_nobody_recorded_how_their_columns_are_made(output: Path) -> None:
    manifest, config = replace(trained(output), columns=()), settings(output)
    assert said(manifest, config) == []  # the rows that it was trained on
    later = replace(SHARDS, train=(ShardInfo("train-00000.h5", 5, 1, 1, "3" * 64),))
    (note,) = said(manifest, config, later)
    assert note == "columns of the data (data.path): not recorded, and taken for the same"
