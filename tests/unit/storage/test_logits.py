"""Logits of many trainers come into the order of the rows, each once."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.errors import ConsistencyError, FileError
from bagpipe_hpc.storage import logits as logits_module
from bagpipe_hpc.storage.logits import LogitsFolder, LogitsWriter, ordered_logits


@pytest.fixture
def folder(tmp_path: Path) -> LogitsFolder:
    return LogitsFolder(tmp_path, Path("found.csv"))


@pytest.mark.parametrize("labels", [1, 3])
def test_parts_come_into_order(labels: int, folder: LogitsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits_module, "_AT_ONCE", 7)
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(50, labels)).astype(np.float32)
    order = rng.permutation(50)
    for trainer, rows in enumerate(np.split(order, [20, 20, 41])):  # the second has none
        with LogitsWriter(folder, trainer, labels) as part:
            for own in np.array_split(rows, 4):
                part.add(own, whole[own] if labels > 1 else whole[own, 0])
    assert np.array_equal(ordered_logits(folder, 4, 50, labels), whole)


@pytest.mark.parametrize("rows", [[0, 1, 1], [0, 1], [0, 1, 2, 2]])
def test_a_row_that_is_not_there_once_is_noticed(rows: list[int], folder: LogitsFolder) -> None:
    with LogitsWriter(folder, 0, 1) as part:
        part.add(np.asarray(rows), np.zeros(len(rows), dtype=np.float32))
    with pytest.raises(ConsistencyError, match="each must be there once"):
        ordered_logits(folder, 1, 3, 1)


def test_what_cannot_be_written_or_read_names_the_predictions(tmp_path: Path, folder: LogitsFolder) -> None:
    with pytest.raises(FileError, match=r"found\.csv: No such file"):
        LogitsWriter(LogitsFolder(tmp_path / "absent", folder.made_for), 2, 1)
    with pytest.raises(FileError, match=r"found\.csv: No such file"):
        ordered_logits(folder, 1, 3, 1)


def test_a_full_disk_is_refused_before_anything_is_put_in_order(
    folder: LogitsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a mapped file without its place on the disk would end the process without a word."""
    with LogitsWriter(folder, 0, 1) as part:
        part.add(np.arange(3), np.zeros(3, np.float32))
    wanted: list[int] = []

    def refuse(_: int, first: int, size: int) -> None:
        wanted.append(first + size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(FileError, match=r"found\.csv: No space left"):
        ordered_logits(folder, 1, 3, 1)
    assert wanted == [12]
