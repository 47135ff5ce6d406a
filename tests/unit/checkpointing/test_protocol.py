"""What a checkpoint says of the rows of its run."""

from dataclasses import replace

import pytest

from bagpipe_hpc.checkpointing.protocol import checkpoint_manifest
from bagpipe_hpc.config.schema import Config, ModelConfig
from bagpipe_hpc.evaluation.standing import Standing
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic, Base
from bagpipe_hpc.storage.shards.columns import column_words
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest

SHARDS = ShardManifest(
    1, "criteo", 3, (TableInfo("C1", 5), TableInfo("C2", 3)), (ShardInfo("train-00000.h5", 64, 7, 1, "0" * 64),), ()
)


@pytest.mark.parametrize(
    ("embedding_dim_of", "said", "widths", "names"),
    [
        ({}, None, (4, 4), ["rows-00000-of-00001.h5"]),
        ({"C2": 4}, None, (4, 4), ["rows-00000-of-00001.h5"]),
        ({"C2": 2}, (4, 2), (4, 2), ["rows-width-4-00000-of-00001.h5", "rows-width-2-00000-of-00001.h5"]),
        ({"C1": 2, "C2": 2}, (2, 2), (2, 2), ["rows-00000-of-00001.h5"]),
    ],
)
def test_widths_are_those_of_the_rows(
    embedding_dim_of: dict[str, int], said: tuple[int, ...] | None, widths: tuple[int, ...], names: list[str]
) -> None:
    """Also where all tables have one that is not `model.embedding_dim`."""
    run = Run(Config(model=ModelConfig(embedding_dim=4, embedding_dim_of=embedding_dim_of)), SHARDS, ())
    files = [FileInfo(name, 5, "1" * 64) for name in (*names, "dense.h5")]
    segment = Segment(SegmentKind.TRAIN, 0, 0, 2, 0, samples=64, batch_size=32, checkpoint=True)
    arithmetic = Arithmetic(trainers=1, linear="torch", device="cpu", threads=1)
    manifest = checkpoint_manifest(run, arithmetic, 1, 2, segment, files)
    assert (manifest.table_widths, manifest.widths, manifest.embedding_dim) == (said, widths, 4)
    assert [group.width for group in manifest.groups] == [group.width for group in run.groups]
    assert [manifest.record_columns(group.width) for group in run.groups] == [
        group.record.saved_width for group in run.groups
    ]


def test_its_place_counts_the_steps_of_these_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that goes on with later rows; the last batch of an epoch is a small one."""
    monkeypatch.setattr(Run, "data_step", 3)
    vocabularies = FileInfo("vocabularies.h5", 9, "2" * 64)
    shards = replace(SHARDS, train=(replace(SHARDS.train[0], rows=65),), vocabularies=vocabularies)
    heard = (Heard(1, 2, 0.5), Heard(2, 1, 0.4), Heard(2, 2, 0.3))  # after 5, 7 and 8 steps
    segment = Segment(SegmentKind.TRAIN, 2, 0, 2, 6, samples=65, batch_size=32, checkpoint=True, heard=heard)
    run, arithmetic = Run(Config(model=ModelConfig(embedding_dim=4)), shards, ()), Arithmetic(1, "torch", "cpu", 1)
    files = [FileInfo(name, 5, "1" * 64) for name in ("rows-00000-of-00001.h5", "dense.h5")]
    base, standing = Base(9, "3" * 64), Standing("auc", 64, best_step=6, best=0.7, to_beat=0.7, without_better=1)
    manifest = checkpoint_manifest(run, arithmetic, 1, 11, segment, files, base, standing)
    assert (manifest.epoch, manifest.epoch_step, manifest.data_step) == (2, 2, 3)
    assert (manifest.train_samples, manifest.batch_size) == (65, 32)
    assert manifest.vocabularies == "2" * 64
    assert manifest.columns == column_words(shards) != ()
    assert (manifest.base, manifest.standing, manifest.heard) == (base, standing, heard[:2])
