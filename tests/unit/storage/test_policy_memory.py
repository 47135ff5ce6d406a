"""What a policy keeps is read back as it was written, and goes when it is wanted no more; damage is refused."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.folder import KeptCheckpoints
from bagpipe_hpc.storage.policy_memory import (
    SEEN_FOLDER,
    load_memory,
    memory_path,
    remove_unwanted_memories,
    save_memory,
)
from tests.unit.checkpoint_samples import sample_records, write_checkpoint


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


@pytest.mark.parametrize(
    ("checkpoints", "left"),
    [
        ((), (7, 21, 35)),
        ((6,), (7, 21, 35)),  # a run that goes on from it may still save itself behind each of them
        ((8, 16), (7, 21, 35)),
        ((9, 16), (21, 35)),
        ((7, 24), (7, 35)),
        ((22, 24), (21, 35)),
        ((9, 22), (21, 35)),
        ((22, 36), (21, 35)),
        ((37,), ()),
    ],
)
def test_what_no_checkpoint_needs_goes(tmp_path: Path, checkpoints: tuple[int, ...], left: tuple[int, ...]) -> None:
    """What is the last of its epoch stays, and so does what a run that is killed now may go on with."""
    for step in (7, 21, 35):
        save_memory(memory_path(tmp_path, step, step + 2), {"first": np.arange(3.0)})
        save_memory(memory_path(tmp_path, step + 2), {"stale": np.arange(3)})
    other = tmp_path / SEEN_FOLDER / "step-00000001-to-2.h5"
    other.touch()
    for step in checkpoints:
        write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step)
    remove_unwanted_memories(tmp_path)
    passing = {memory_path(tmp_path, step, step + 2) for step in left}
    assert {*other.parent.iterdir()} == {other, *passing, *(memory_path(tmp_path, step) for step in (9, 23, 37))}


def test_it_goes_with_the_last_checkpoint_that_needs_it(tmp_path: Path) -> None:
    needed = memory_path(tmp_path, 7, 9)
    save_memory(needed, {"first": np.arange(3.0)})
    for step, is_there in ((8, True), (12, True), (16, False)):
        newest = write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3), step=step)
        KeptCheckpoints(2).remove_older(newest)
        remove_unwanted_memories(tmp_path)
        assert needed.exists() == is_there


def test_nothing_is_missed_where_no_policy_keeps_anything(tmp_path: Path) -> None:
    remove_unwanted_memories(tmp_path)
