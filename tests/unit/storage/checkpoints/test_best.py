"""The best checkpoint is named by a small file, and stays whatever else is removed."""

import errno
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.best import BEST_NAME, Best, forget_best_after, outdo_best, read_best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, KeptCheckpoints, find_checkpoints
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

BEST = Best(step=20, measure="auc", value=0.75, samples=100)


def write(output: Path, step: int, base: Path | None = None) -> Path:
    updated = None if base is None else sample_rows()
    return write_checkpoint(output, sample_records((4,), 2), (4,), step=step, base=base, updated=updated)


def sample_rows() -> np.ndarray:
    return np.asarray([1, 2])


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_best(tmp_path) is None
    for best in (BEST, Best(step=30, measure="log_loss", value=0.5, samples=100)):
        write_best(tmp_path, best)
        assert read_best(tmp_path) == best
    assert [path.name for path in tmp_path.iterdir()] == [BEST_NAME]


@pytest.mark.parametrize("text", ["", "{}", '{"step": -1, "measure": "auc", "value": 0.5, "samples": 1}', "[1]"])
def test_a_malformed_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / BEST_NAME).write_text(text)
    with pytest.raises(CheckpointError, match=f"{BEST_NAME}.*remove the file"):
        read_best(tmp_path)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_best(tmp_path / "absent", BEST)


def test_the_best_checkpoint_stays_with_what_it_builds_on(tmp_path: Path) -> None:
    base = write(tmp_path, 10)
    best = write(tmp_path, 20, base)
    later = [write(tmp_path, step) for step in (30, 40)]
    write_best(tmp_path / CHECKPOINTS_FOLDER, BEST)
    KeptCheckpoints(1).remove_older(later[-1])
    assert find_checkpoints(tmp_path) == [base, best, later[-1]]
    load_checkpoint(best).verify()
    write_best(tmp_path / CHECKPOINTS_FOLDER, Best(40, "auc", 0.76, 100))
    KeptCheckpoints(1).remove_older(write(tmp_path, 50))
    assert [path.name for path in find_checkpoints(tmp_path)] == ["step-00000040", "step-00000050"]


@pytest.mark.parametrize(("step", "stays"), [(19, False), (20, True), (21, True)])
def test_a_run_that_goes_on_from_before_the_best_forgets_it(step: int, stays: bool, tmp_path: Path) -> None:
    forget_best_after(tmp_path, step)
    write_best(tmp_path, BEST)
    forget_best_after(tmp_path, step)
    assert (read_best(tmp_path) is not None) == stays


BETTER = Best(step=30, measure="auc", value=0.8, samples=100)


def test_a_better_one_that_is_saved_is_to_be_named_where_one_is_named(tmp_path: Path) -> None:
    assert not outdo_best(tmp_path, BETTER, is_saved=True)
    write_best(tmp_path, BEST)
    assert outdo_best(tmp_path, BETTER, is_saved=True)
    assert read_best(tmp_path) == BEST, "the better one may not be complete yet"


def test_where_the_better_one_is_not_saved_none_is_the_best(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not outdo_best(tmp_path, BETTER, is_saved=False)
    assert not caplog.text
    write_best(tmp_path, BEST)
    assert not outdo_best(tmp_path, BETTER, is_saved=False)
    assert read_best(tmp_path) is None
    assert "after step 30 is the best so far, but has no checkpoint" in caplog.text
    assert "the checkpoint of step 20 is no longer named the best" in caplog.text


def test_where_it_cannot_be_removed_the_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what was the best would be taken for it for ever."""

    def refuse(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    write_best(tmp_path, BEST)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CheckpointError, match=rf"{BEST_NAME}: cannot be removed \(Read-only file system\)"):
        outdo_best(tmp_path, BETTER, is_saved=False)
