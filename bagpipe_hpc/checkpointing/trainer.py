"""The trainers' part of checkpoints: announce them, keep the dense half, commit when all files are written."""

import copy
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bagpipe_hpc.checkpointing.protocol import Due, SavingSettings, announce, wait_for_copies
from bagpipe_hpc.evaluation.standing import Standing
from bagpipe_hpc.mpi.checkpoint_channel import await_written, send_updated
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.mpi.waiting import wait_until
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.rows.updated import UpdatedRows
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.best import Best, outdo_best, write_best
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, KeptCheckpoints
from bagpipe_hpc.storage.checkpoints.manifest import Base, CheckpointManifest
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter, base_of
from bagpipe_hpc.storage.policy_memory import remove_unwanted_memories
from bagpipe_hpc.telemetry.records.record import Record

DenseState = tuple[dict[str, Any], dict[str, Any]]
"""The `state_dict()` of the model and of its optimizer."""

_SLEEP_S = 5e-3


@dataclass(frozen=True)
class _Writing:
    """A checkpoint that is being written.

    Attributes:
        committed: its manifest, once it is complete.
        directory: where it will be.
        since_s: when it was announced.
        stood_still_s: how long training stood still for it.
    """

    committed: Future[CheckpointManifest]
    directory: Path
    since_s: float
    stood_still_s: float


class TrainerCheckpoints:
    """Saves a run as often as its trainers ask for it; one checkpoint is written at a time.

    Args:
        settings: how the run saves itself.
        describe: makes the manifest of a checkpoint from its step, the segment that has ended, its files, the
            checkpoint that it builds on, if any, and the standing.
        comms: this rank's communicators.
        updated: where the mover notes the rows of each group of tables that it has written back; empty where every
            checkpoint holds all rows.
        record: the run's record on the first trainer, which writes the dense half and commits; None on the others.
        watch: raises the error that ended another thread of this rank, if one did.
    """

    def __init__(
        self,
        settings: SavingSettings,
        describe: Callable[[int, Segment, list[FileInfo], Base | None, Standing | None], CheckpointManifest],
        comms: Communicators,
        updated: Sequence[UpdatedRows],
        record: Record | None,
        watch: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._describe = describe
        self._comms = comms
        self._updated = updated
        self._record = record
        self._timeout_s = settings.timeout_s
        self._watch = watch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: _Writing | None = None
        self._announced = 0
        self._newest: Path | None = None
        self._kept = KeptCheckpoints(settings.kept)
        self._best: Best | None = None

    def save(self, step: int, segment: Segment, dense: DenseState, standing: Standing | None) -> None:
        """Start a checkpoint; every row and weight may change again when this returns.

        Args:
            step: steps done.
            segment: the segment that has ended, perhaps early.
            dense: this trainer's dense state; the first trainer's is saved.
            standing: the standing after the evaluations before that step.

        Collective over: `comms.store`.

        Raises:
            CheckpointError: the checkpoint before could not be written.
            WaitTimeoutError: a server did not come in time.
        """
        self._wait()
        since_s = time.perf_counter()
        due = Due(step, holds_all=self._announced % self._settings.full_every == 0)
        self._announced += 1
        announce(self._comms, due, self._timeout_s)
        for group, updated in enumerate(self._updated):
            if not due.holds_all:
                send_updated(self._comms.store, group, updated.by_server(), self._timeout_s)
            updated.clear()
        kept = _copy_to_host(dense) if self._record else None
        wait_for_copies(self._comms, self._timeout_s)
        if kept is not None:
            writer = CheckpointWriter(self._settings.output, step)
            base = None if due.holds_all else self._newest
            committed = self._thread.submit(self._write, writer, base, segment, kept, step, standing)
            self._writing = _Writing(committed, writer.directory, since_s, time.perf_counter() - since_s)
            if self._record:
                self._record.saving(step)

    def mark_best(self, best: Best) -> None:
        """Name a checkpoint as the best, once it is complete: the one that is being written, or an earlier one.

        Raises:
            CheckpointError: the file that names it cannot be written.
        """
        if self._record:
            self._best = best
            self._name_best()

    def outdo_best(self, best: Best, *, is_saved: bool) -> None:
        """Name no checkpoint as the best that has been outdone; arguments and errors as for `best.outdo_best`."""
        if not self._record:
            return
        if outdo_best(self._settings.output / CHECKPOINTS_FOLDER, best, is_saved=is_saved):
            self.mark_best(best)
        else:
            self._best = None  # a checkpoint that is still being written is not the best either

    def _name_best(self) -> None:
        """Name the best checkpoint, if it is complete and not named yet."""
        if self._best and not self._writing:
            write_best(self._settings.output / CHECKPOINTS_FOLDER, self._best)
            self._best = None

    def check(self) -> None:
        """Report a checkpoint that has become complete, without waiting.

        Raises:
            CheckpointError: it could not be written.
            WaitTimeoutError: a server did not write its part in time.
        """
        if self._writing is None or not self._writing.committed.done():
            return
        done, self._writing = self._writing, None
        manifest = done.committed.result()
        self._newest = done.directory
        if self._record:
            self._record.checkpoint(manifest, done.directory, done.stood_still_s, time.perf_counter() - done.since_s)
        self._name_best()

    def finish(self) -> None:
        """Wait for the last checkpoint, and tell the servers that no other comes. Collective over: `comms.store`.

        Raises:
            CheckpointError: it could not be written.
        """
        self._wait()
        announce(self._comms, None, self._timeout_s)
        self._thread.shutdown()

    def _wait(self) -> None:
        """Wait until the checkpoint that is being written is complete."""
        if self._writing:
            what = f"the checkpoint {self._writing.directory} to be complete"
            wait_until(self._writing.committed.done, what, self._timeout_s, self._watch, longest_sleep_s=_SLEEP_S)
            self.check()

    def _write(
        self,
        writer: CheckpointWriter,
        base: Path | None,
        segment: Segment,
        dense: DenseState,
        step: int,
        standing: Standing | None,
    ) -> CheckpointManifest:
        """Write the dense half, wait for the servers' files, and commit; in a thread of its own."""
        servers = self._comms.layout.servers
        info = writer.write_dense(*dense)
        written: list[list[FileInfo]] = await_written(self._comms.saving, range(servers), self._timeout_s)
        files = [*(file for of_server in written for file in of_server), info]
        built_on = base_of(base) if base else None
        manifest = self._describe(step, segment, files, built_on, standing)
        self._kept.remove_older(writer.commit(manifest))
        remove_unwanted_memories(self._settings.output)
        return manifest


def _copy_to_host(value: Any) -> Any:
    """A copy of nested dicts, lists and tuples, with its tensors in main memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copy_to_host(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copy_to_host(entry) for entry in value)
    return copy.copy(value)
