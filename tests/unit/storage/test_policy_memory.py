"""What a policy keeps is read back as it was written; a missing or damaged file is refused."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.policy_memory import load_memory, memory_path, save_memory


def test_arrays_are_read_back(tmp_path: Path) -> None:
    path = memory_path(tmp_path, 12)
    assert path == tmp_path / "policy" / "step-00000012.h5"
    arrays = {"first": np.random.default_rng(1).random((5, 3), dtype=np.float32), "none": np.empty(0, dtype=np.int64)}
    for _ in range(2):  # the second time in the place of the first
        save_memory(path, arrays)
        found = load_memory(path)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = memory_path(tmp_path, 3)
    with pytest.raises(CheckpointError, match=f"{path}: is absent"):
        load_memory(path)
    save_memory(path, {"first": np.arange(9.0)})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=str(path)):
        load_memory(path)
