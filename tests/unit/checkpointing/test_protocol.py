"""What a checkpoint says of the rows of its run."""

import pytest

from bagpipe_hpc.checkpointing.protocol import checkpoint_manifest
from bagpipe_hpc.config.schema import Config, ModelConfig
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic
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
