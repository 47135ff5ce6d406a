"""What a run of one process leaves behind in it."""

import gc
from pathlib import Path

import h5py

from tests.ragged_shards import write_ragged
from tests.unit.tools.exporting.trained_models import train_small


def test_shards_are_closed(tmp_path: Path) -> None:
    """HDF5 does not open a file that its process has open with other flags: a notebook could not read it next."""
    write_ragged(tmp_path / "shards", dense_features=3)
    gc.collect()
    gc.disable()  # it closes what was forgotten, some time later
    try:
        train_small(tmp_path, tmp_path / "shards", ["model.name=dcn", "model.embedding_dim=4", "model.deep_mlp=[4]"])
        for shard in (tmp_path / "shards").glob("*.h5"):
            h5py.File(shard, "r", locking=True).close()
    finally:
        gc.enable()
