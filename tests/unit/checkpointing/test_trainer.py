"""The trainers' part of checkpoints: which holds all rows, what it builds on, and when it is told of and named."""

import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bagpipe_hpc.checkpointing import trainer
from bagpipe_hpc.checkpointing.protocol import Due, SavingSettings
from bagpipe_hpc.checkpointing.trainer import TrainerCheckpoints
from bagpipe_hpc.errors import CheckpointError, WaitTimeoutError
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.updated import UpdatedRows
from bagpipe_hpc.storage.checkpoints.best import Best, read_best, write_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, checkpoint_name, find_checkpoints
from bagpipe_hpc.storage.checkpoints.manifest import MANIFEST_FILE, load_checkpoint_manifest
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter
from tests.unit.checkpoint_samples import sample_records, trained_dense, write_checkpoint

ROWS = (5, 4)
SEGMENT: Any = "the segment"
STANDING: Any = "the standing"


class Job:
    """A trainer, and two servers in place of MPI.

    Args:
        patch: puts the servers in place.
        output: of the run.
        is_first: whether the trainer is the one that writes the dense half.
        full_every: checkpoints of which one holds all rows.
        kept: checkpoints that are kept.
        timeout_s: longest wait.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        output: Path,
        *,
        is_first: bool = True,
        full_every: int = 1,
        kept: int = 0,
        timeout_s: float = 20.0,
    ) -> None:
        self.output = output
        self.happened: list[Any] = []
        self.described: list[tuple[Any, ...]] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.failure: CheckpointError | None = None
        self.updated = UpdatedRows(RoundRobinPartition(1000, 2))  # of so many that a few are listed
        self._steps: list[int] = []
        patch.setattr(trainer, "announce", self._announce)
        patch.setattr(trainer, "send_updated", self._send)
        patch.setattr(trainer, "wait_for_copies", lambda *_: self.happened.append("copied"))
        patch.setattr(trainer, "await_written", self._await_written)
        self.cleaned: list[tuple[Path, int]] = []
        patch.setattr(trainer, "remove_unwanted_memories", self._clean)
        ticks = count(1000)
        patch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
        self._write_dense = CheckpointWriter.write_dense
        patch.setattr(CheckpointWriter, "write_dense", lambda writer, *dense: self._write_late(writer, dense))
        self._longest_s = 2 * timeout_s
        record: Any = SimpleNamespace(
            saving=lambda step: self.happened.append(f"saving {step}"),
            checkpoint=lambda manifest, directory, *seconds: self._tell(manifest.step, directory, seconds),
        )
        comms: Any = SimpleNamespace(layout=SimpleNamespace(servers=2), store="store", saving="saving")
        settings = SavingSettings(output, True, full_every, kept, timeout_s)
        self.checkpoints = TrainerCheckpoints(
            settings, self._describe, comms, [self.updated], record if is_first else None, lambda: None
        )

    def save(self, step: int, rows: list[int]) -> None:
        """Save after a step, up to which these rows were written back."""
        self.updated.add(np.array(rows, np.int64))
        self.checkpoints.save(step, SEGMENT, trained_dense(step), None)

    def is_told(self, step: int) -> bool:
        """Whether the record has heard that the checkpoint of a step is complete."""
        return f"complete {step}" in self.happened

    def _announce(self, comms: Any, due: Due | None, timeout_s: float) -> None:  # noqa: ARG002
        self.happened.append(due)
        if due:
            self._steps.append(due.step)

    def _send(self, comm: Any, group: int, told: list[Any], timeout_s: float) -> None:  # noqa: ARG002
        self.happened.append((comm, group, [places.tolist() for places in told]))

    def _write_late(self, writer: CheckpointWriter, dense: Any) -> Any:
        assert self.may_end.wait(self._longest_s)
        return self._write_dense(writer, *dense)

    def _clean(self, output: Path) -> None:
        self.cleaned.append((output, len(find_checkpoints(output))))

    def _await_written(self, comm: Any, servers: range, timeout_s: float) -> list[Any]:  # noqa: ARG002
        assert (comm, servers) == ("saving", range(2))
        if self.failure:
            raise self.failure
        writer, records = CheckpointWriter(self.output, self._steps.pop(0)), sample_records(ROWS, 3)
        partition = RoundRobinPartition(sum(ROWS), 2)
        rows = [partition.rows_of(server, 0, partition.rows_on(server)) for server in servers]
        return [[writer.write_rows(server, partition, records[rows[server]], 2)] for server in servers]

    def _describe(self, step: int, segment: Any, files: Any, base: Any, standing: Any) -> Any:
        self.described.append((step, segment, [info.file for info in files], base and base.step, standing))
        sample = write_checkpoint(
            self.output / f"sample of {step}", sample_records(ROWS, 3), ROWS, servers=2, step=step
        )
        return replace(load_checkpoint_manifest(sample / MANIFEST_FILE), files=tuple(files), base=base)

    def _tell(self, step: int, directory: Path, seconds: tuple[float, float]) -> None:
        assert directory == self.output / CHECKPOINTS_FOLDER / checkpoint_name(step)
        assert seconds == (1.0, 2.0), "it asks for the time before, behind the copies, and now"
        self.happened.append(f"complete {step}")


def test_increments_build_on_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They hold the rows since then alone, of which those before a full one are forgotten, too."""
    job = Job(monkeypatch, tmp_path, full_every=3)
    for step, rows in ((1, [8]), (2, [0, 3]), (3, [4]), (4, [1]), (5, [2])):
        job.save(step, rows)
    job.checkpoints.finish()
    assert [due for due in job.happened if isinstance(due, Due)] == [
        Due(step, holds_all) for step, holds_all in enumerate((True, False, False, True, False), start=1)
    ]
    sent = [told for told in job.happened if isinstance(told, tuple)]
    assert sent == [("store", 0, own) for own in ([[0], [1]], [[2], []], [[1], []])]
    assert [(one[0], one[3]) for one in job.described] == [(1, None), (2, 1), (3, 2), (4, None), (5, 4)]


def test_a_checkpoint_is_written_beside_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it holds of the weights is what they were; it is told of when it is complete, and the next one waits."""
    job = Job(monkeypatch, tmp_path)
    job.may_end.clear()
    model, optimizer = trained_dense()
    expected = {name: weight.clone() for name, weight in model.items()}
    job.checkpoints.save(1, SEGMENT, (model, optimizer), STANDING)
    assert job.happened == [Due(1, holds_all=True), "copied", "saving 1"]
    for weight in model.values():
        weight.fill_(7.0)
    job.checkpoints.check()
    assert not job.is_told(1)
    job.may_end.set()
    job.save(2, [])
    assert job.happened[3:] == ["complete 1", Due(2, holds_all=True), "copied", "saving 2"]
    job.checkpoints.finish()
    assert job.happened[-2:] == ["complete 2", None]
    files = ["rows-00000-of-00002.h5", "rows-00001-of-00002.h5", "dense.h5"]
    assert job.described[0] == (1, SEGMENT, files, None, STANDING)
    found, _ = load_checkpoint(tmp_path / CHECKPOINTS_FOLDER / checkpoint_name(1)).read_dense()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_the_other_trainers_write_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But they say which rows they have written back, and name no checkpoint the best."""
    job = Job(monkeypatch, tmp_path, is_first=False, full_every=2)
    (tmp_path / CHECKPOINTS_FOLDER).mkdir()
    write_best(tmp_path / CHECKPOINTS_FOLDER, Best(1, "auc", 0.5, 9))
    job.save(1, [8])
    job.save(2, [3])
    job.checkpoints.mark_best(Best(2, "auc", 0.6, 9))
    job.checkpoints.outdo_best(Best(2, "auc", 0.6, 9), is_saved=False)
    job.checkpoints.finish()
    told = ("store", 0, [[], [1]])
    assert job.happened == [Due(1, holds_all=True), "copied", Due(2, holds_all=False), told, "copied", None]
    best = read_best(tmp_path / CHECKPOINTS_FOLDER)
    assert best is not None
    assert best.step == 1


@pytest.mark.parametrize("way", ["mark", "outdo"])
def test_the_best_is_named_when_it_is_complete(way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not while it is being written: a kill would leave the name of none. An earlier one is named at once."""
    job, folder = Job(monkeypatch, tmp_path), tmp_path / CHECKPOINTS_FOLDER
    job.save(1, [])
    job.checkpoints.finish()
    job = Job(monkeypatch, tmp_path)
    job.checkpoints.mark_best(Best(1, "auc", 0.5, 9))
    assert read_best(folder) == Best(1, "auc", 0.5, 9)
    job.may_end.clear()
    job.save(2, [])
    better = Best(2, "auc", 0.6, 9)
    if way == "mark":
        job.checkpoints.mark_best(better)
    else:
        job.checkpoints.outdo_best(better, is_saved=True)
    job.checkpoints.check()
    assert read_best(folder) == Best(1, "auc", 0.5, 9)
    job.may_end.set()
    job.checkpoints.finish()
    assert read_best(folder) == better


def test_a_better_one_that_is_not_saved_leaves_none_the_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job, folder = Job(monkeypatch, tmp_path), tmp_path / CHECKPOINTS_FOLDER
    job.save(1, [])
    job.checkpoints.mark_best(Best(1, "auc", 0.5, 9))
    job.save(2, [])
    job.checkpoints.outdo_best(Best(3, "auc", 0.6, 9), is_saved=False)
    job.checkpoints.finish()
    assert read_best(folder) is None


def test_one_that_is_outdone_while_it_is_written_is_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Training goes on meanwhile, and an evaluation may come that is better and has no checkpoint."""
    job, folder = Job(monkeypatch, tmp_path), tmp_path / CHECKPOINTS_FOLDER
    job.save(1, [])
    job.checkpoints.finish()
    write_best(folder, Best(1, "auc", 0.5, 9))
    job = Job(monkeypatch, tmp_path)
    job.may_end.clear()
    job.save(2, [])
    job.checkpoints.outdo_best(Best(2, "auc", 0.6, 9), is_saved=True)
    job.checkpoints.outdo_best(Best(3, "auc", 0.7, 9), is_saved=False)
    job.may_end.set()
    job.checkpoints.finish()
    assert job.is_told(2)
    assert read_best(folder) is None


def test_as_many_are_kept_as_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job(monkeypatch, tmp_path, kept=2)
    for step in (1, 2, 3):
        job.save(step, [])
    job.checkpoints.finish()
    assert [path.name for path in find_checkpoints(tmp_path)] == [checkpoint_name(2), checkpoint_name(3)]
    assert job.cleaned == [(tmp_path, kept) for kept in (1, 2, 2)], "of what policies remember, behind each"


def test_what_a_checkpoint_fails_of_is_raised_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By whatever asks first; nothing is told of it."""
    job = Job(monkeypatch, tmp_path)
    job.failure = CheckpointError("the disk is full")
    job.save(1, [])
    with pytest.raises(CheckpointError, match="the disk is full"):
        job.save(2, [])
    job.checkpoints.check()
    assert job.happened == [Due(1, holds_all=True), "copied", "saving 1"]


def test_a_checkpoint_that_does_not_come_ends_the_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job(monkeypatch, tmp_path, timeout_s=0.2)
    job.may_end.clear()
    job.save(1, [])
    with pytest.raises(WaitTimeoutError, match=r"checkpoint .*step-00000001 to be complete"):
        job.checkpoints.finish()
    job.may_end.set()
