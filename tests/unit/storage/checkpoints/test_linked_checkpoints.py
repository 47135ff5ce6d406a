"""Checkpoints that a link leads to, or that are named by one: they are found, and an archive is left alone."""

import os
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.storage.checkpoints.best import Best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import KeptCheckpoints, find_checkpoints
from bagpipe_hpc.tools.scoring.chosen import choose_checkpoint
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.storage.checkpoints.test_increments import TABLES, write_chain


def archive(path: Path, folder: Path) -> Path:
    """Move a checkpoint to another folder, and leave a link to it."""
    folder.mkdir()
    moved = path.rename(folder / path.name)
    path.symlink_to(moved)
    return moved


def test_pruning_removes_a_link_and_not_the_archive(tmp_path: Path) -> None:
    older = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=10)
    newer = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=20)
    moved = archive(older, tmp_path / "archive")
    KeptCheckpoints(1).remove_older(newer)
    assert find_checkpoints(tmp_path) == [newer]
    assert not os.path.lexists(older)
    load_checkpoint(moved).verify()


@pytest.mark.parametrize("is_gone", [False, True])
def test_replacing_a_linked_checkpoint_leaves_the_archive(tmp_path: Path, is_gone: bool) -> None:
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=10)
    moved = archive(path, tmp_path / "archive")
    if is_gone:
        moved.rename(tmp_path / "purged")
    again = write_checkpoint(tmp_path, sample_records(TABLES, 5, seed=9), TABLES, step=10)
    assert again == path
    assert not path.is_symlink()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    load_checkpoint(path).verify()
    if not is_gone:
        load_checkpoint(moved).verify()


@pytest.mark.parametrize("named", [".", "..", "latest", "linked"])
def test_what_an_increment_builds_on_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Beside the name by which it was opened, also where that is the current folder; or behind the link."""
    chain = write_chain(tmp_path, 3)
    (chain[-1] / "inside").mkdir()
    (tmp_path / "latest").symlink_to(chain[-1])
    monkeypatch.chdir(chain[-1] / "inside" if named == ".." else tmp_path if named == "latest" else chain[-1])
    path = Path(named)
    if named == "linked":  # one by one, as from an archive
        for directory in chain:
            archive(directory, tmp_path / f"archive of {directory.name}")
        path = chain[-1]
    opened = load_checkpoint(path)
    assert [layer.manifest.step for layer in opened.layers()] == [int(path.name[-8:]) for path in chain]
    assert np.array_equal(opened.read_rows(0, 3), load_checkpoint(chain[-1]).read_rows(0, 3))
    assert opened.output == tmp_path


def test_the_best_one_is_found_while_another_takes_its_place(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=10)
    write_best(path.parent, Best(10, "auc", 0.75, 100))
    aside = path.rename(path.with_name("step-00000010.replaced"))
    assert choose_checkpoint(tmp_path, best=True).directory == aside
